"""Pure functions of a Program: liveness, addresses and search."""
