"""Arithmetic, comparison, logic and casts, element by element."""
