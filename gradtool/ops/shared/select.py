"""Gathering, and selection by masks on the bits of numbers: exact for infinities and NaN.

Masked copies of numpy take ten times as long.  A mask is used up: its bytes are overwritten.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.ops.shared.types import Array

INTEGERS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


def keep(xp: Any, mask: Array, x: Array, out: Array, t: Array) -> None:
    """`out = x where mask else 0`, with a temporary `t` of its type; `out` may be x."""
    selector = mask.view(xp.int8)
    xp.negative(selector, out=selector)
    _and(xp, selector, x, out, t)


def drop(xp: Any, mask: Array, x: Array, out: Array, t: Array) -> None:
    """`out = 0 where mask else x`, with a temporary `t` of its type; `out` may be x."""
    selector = mask.view(xp.int8)
    xp.subtract(selector, 1, out=selector)
    _and(xp, selector, x, out, t)


def _and(xp: Any, selector: Array, x: Array, out: Array, t: Array) -> None:
    bits = INTEGERS[out.dtype.itemsize]
    t, made = t.view(bits), out.view(bits)
    xp.copyto(t, selector)
    xp.bitwise_and(t, made if x is out else x.view(bits), out=made)


def choose(xp: Any, mask: Array, a: Array, b: Array, out: Array, t: Array, s: Array) -> None:
    """`out = a where mask else b`, with temporaries `t, s`; `out` may be a or b."""
    bits = INTEGERS[out.dtype.itemsize]
    selector = mask.view(xp.int8)
    made, t, s = (array.view(bits) for array in (out, t, s))
    a, b = (made if array is out else array.view(bits) for array in (a, b))
    xp.negative(selector, out=selector)
    xp.copyto(s, selector)
    xp.bitwise_xor(a, b, out=t)
    xp.bitwise_and(t, s, out=t)
    xp.bitwise_xor(t, b, out=made)


def take(xp: Any, x: Array, positions: Array, *, axis: int | None = None, out: Array) -> None:
    """`out = x[positions]` along `axis`, or of the flat x; all positions are in bounds.

    numpy buffers a whole copy of `out` unless it may clip; CuPy has no such mode.
    """
    if xp is np:
        np.take(x, positions, axis=axis, out=out, mode="clip")
    else:
        xp.take(x, positions, axis=axis, out=out)
