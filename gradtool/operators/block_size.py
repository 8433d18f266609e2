"""Sizes of the blocks of kernels: to stay in a processor's cache, or to fill a device.

A kernel that works piece by piece says how large a piece is for a processor's cache.  A CUDA
device has a hundred times as many threads and a second-level cache of tens of MiB, and every piece
costs it a launch, some microseconds: there pieces are so many times as large.  A plan counts the
workspaces of the pieces that it is made for, so that a step must run with the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

CACHE, DEVICE = 1, 64

_grain: ContextVar[int] = ContextVar("grain", default=CACHE)


@contextmanager
def grain(times: int) -> Iterator[None]:
    """Make pieces `times` as large as for a processor's cache."""
    before = _grain.set(times)
    try:
        yield
    finally:
        _grain.reset(before)


def at_a_time(size: int, most: int | None = None) -> int:
    """Size of a piece, from the `size` for a processor's cache.

    On a device `most` is enough: a piece that takes long for one launch, or one whose temporaries
    no plan counts.
    """
    found = size * _grain.get()
    return found if most is None else min(found, max(size, most))
