"""Words, units, tables and TOML, shared by all messages."""
