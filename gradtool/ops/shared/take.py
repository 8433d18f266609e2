"""Gathering into a given array, with numpy and with CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.ops.shared.types import Array


def take(xp: Any, x: Array, positions: Array, *, axis: int | None = None, out: Array) -> None:
    """`out = x[positions]` along `axis`, or of the flat x; all positions are in bounds.

    numpy buffers a whole copy of `out` unless it may clip; CuPy has no such mode.
    """
    if xp is np:
        np.take(x, positions, axis=axis, out=out, mode="clip")
    else:
        xp.take(x, positions, axis=axis, out=out)
