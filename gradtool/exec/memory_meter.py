"""Bytes held beside an arena: on the host by Python and numpy, on a device by CuPy."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np

from gradtool.exec.device import Device


class Meter(Protocol):
    """Meter of memory: bytes `held` now, and at `most` since the last `restart`."""

    @property
    def held(self) -> int:
        """Bytes now."""

    @property
    def most(self) -> int:
        """Bytes at most since the last restart."""

    def restart(self) -> None:
        """Reset the peak to the bytes held now."""


@contextmanager
def beside(device: Device) -> Iterator[Meter]:
    """Count the bytes held from here on.

    On the CPU that is what Python and numpy allocate (`tracemalloc`); on a CUDA device what is
    taken of CuPy's memory and not given back, in the blocks of its pool (512 bytes each), not what
    the pool keeps for later.
    """
    # A full collection empties the interpreter's free lists, so that what is made from now on is
    # traced; frozen objects are not looked through for it.
    gc.freeze()
    gc.collect()
    try:
        with _traced() if device.xp is np else _hooked(device.xp) as meter:
            yield meter
    finally:
        gc.unfreeze()


class _Traced:
    """Meter by `tracemalloc`."""

    @property
    def held(self) -> int:
        """Bytes now."""
        return tracemalloc.get_traced_memory()[0]

    @property
    def most(self) -> int:
        """Bytes at most since the last restart."""
        return tracemalloc.get_traced_memory()[1]

    def restart(self) -> None:
        """Reset the peak to the bytes held now."""
        tracemalloc.reset_peak()


@contextmanager
def _traced() -> Iterator[Meter]:
    tracemalloc.start()
    try:
        yield _Traced()
    finally:
        tracemalloc.stop()


def _hooked(xp: Any) -> AbstractContextManager[Meter]:
    """A hook of CuPy's allocator that counts; entered, it is that."""

    class Counting(xp.cuda.MemoryHook):  # type: ignore[misc]
        """Bytes taken and not given back since the hook was registered."""

        name = "gradtool"

        def __init__(self) -> None:
            self.held = self.most = 0
            self._taken: dict[int, int] = {}

        def restart(self) -> None:
            """Reset the peak to the bytes held now."""
            self.most = self.held

        def malloc_postprocess(self, **block: int) -> None:
            """A block was taken."""
            self._taken[block["mem_ptr"]] = block["mem_size"]
            self.held += block["mem_size"]
            self.most = max(self.most, self.held)

        def free_postprocess(self, **block: int) -> None:
            """A block was given back; one taken before the hook was there is none of ours."""
            self.held -= self._taken.pop(block["mem_ptr"], 0)

    return Counting()
