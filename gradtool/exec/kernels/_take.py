"""Gathering into a given array, with numpy and with CuPy."""

from __future__ import annotations

import numpy as np


def take(xp, x, positions, *, axis=None, out):
    """`out = x[positions]` along `axis`, or of the flat x; all positions are in bounds.

    numpy buffers a whole copy of `out` unless it may clip; CuPy has no such mode.
    """
    if xp is np:
        np.take(x, positions, axis=axis, out=out, mode="clip")
    else:
        xp.take(x, positions, axis=axis, out=out)
