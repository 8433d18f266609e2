"""One file per command: options, one call, output."""
