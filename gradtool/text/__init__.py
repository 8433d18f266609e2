"""Words, units, tables and TOML: what is said, wherever it is said."""
