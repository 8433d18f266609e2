"""Whether indices are in bounds: known at once on the CPU, on a device when it has caught up.

A device runs behind the program that launches its kernels.  What it says of indices is asked for
once a step, before parameters are updated and at the end, so that nothing waits in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np

from gradtool.ops.shared.types import Array


class Doubts:
    """Index checks of a program's steps with a result still on the device."""

    def __init__(self) -> None:
        self._open: list[tuple[Array, Exception, int]] = []
        self._step = 0

    @contextmanager
    def of(self, step: int) -> Iterator[None]:
        """Assign indices read meanwhile to a step."""
        self._step = step
        before = _DOUBTS.set(self)
        try:
            yield
        finally:
            _DOUBTS.reset(before)

    def add(self, flag: Array, error: Exception) -> None:
        """Raise `error` later if the flag is up then."""
        self._open.append((flag, error, self._step))

    def settled(self) -> tuple[Exception, int] | None:
        """The first error that came true, and its step; waits for the device, and forgets all."""
        found, self._open = self._open, []
        return next(((error, step) for flag, error, step in found if flag), None)


_DOUBTS: ContextVar[Doubts | None] = ContextVar("gradtool.doubts", default=None)


def within(xp: Any, indices: Array, low: int, high: int, error: Callable[[], Exception]) -> None:
    """Raise an error unless `low <= i < high` for all indices; on a device perhaps later."""
    if not indices.size:
        return
    if xp is np:
        if not low <= indices.min() <= indices.max() < high:
            raise error()
        return
    flag, doubts = _outside(xp)(indices, low, high), _DOUBTS.get()
    if doubts is not None:
        doubts.add(flag, error())
    elif flag:
        raise error()


@cache
def _outside(xp: Any) -> Any:
    return xp.ReductionKernel(
        "T i, int64 low, int64 high", "bool found", "i < low || i >= high", "a || b", "found = a",
        "false", "gradtool_outside",
    )  # fmt: skip
