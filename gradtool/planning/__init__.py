"""Pure functions of a Program: what is alive when, and where it lies."""
