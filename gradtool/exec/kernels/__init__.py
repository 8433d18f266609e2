"""Kernel bodies in terms of `xp` (numpy or CuPy), one file per operator family."""
