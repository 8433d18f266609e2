"""Threefry-2x32-20: random words as a function of a key and a counter alone.

Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)  # of the rounds, over and over
ROUNDS = 20
BETWEEN = 4  # rounds after which the key is added again
PARITY = 0x1BD11BDA
BITS = 32
MASK = (1 << BITS) - 1
