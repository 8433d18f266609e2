"""Bytes that are held beside an arena: on the host by Python and numpy, on a device by CuPy."""

from __future__ import annotations

import gc
import tracemalloc
from types import TracebackType
from typing import Any, Self

import numpy as np

from gradtool.exec.device import Device


class Beside:
    """Counts, while entered, what is `held` now and what was held at `most` since `restart`.

    On the CPU that is what Python and numpy have allocated (`tracemalloc`); on a CUDA device what
    was taken of CuPy's memory and not given back, in the blocks of its pool (512 bytes each), not
    what the pool keeps for later.
    """

    def __init__(self, device: Device) -> None:
        self._hook = None if device.xp is np else _hook(device.xp)

    def __enter__(self) -> Self:
        # A full collection empties the interpreter's free lists, so that what is made from now on
        # is traced; frozen objects are not looked through for it.
        gc.freeze()
        gc.collect()
        if self._hook is None:
            tracemalloc.start()
        else:
            self._hook.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._hook is None:
            tracemalloc.stop()
        else:
            self._hook.__exit__(kind, error, trace)
        gc.unfreeze()

    @property
    def held(self) -> int:
        """Bytes now."""
        return tracemalloc.get_traced_memory()[0] if self._hook is None else int(self._hook.held)

    @property
    def most(self) -> int:
        """Bytes at most since the last restart."""
        return tracemalloc.get_traced_memory()[1] if self._hook is None else int(self._hook.most)

    def restart(self) -> None:
        """Forget what was held at most before."""
        if self._hook is None:
            tracemalloc.reset_peak()
        else:
            self._hook.most = self._hook.held


def _hook(xp: Any) -> Any:
    """A hook of CuPy's allocator that counts."""

    class Counting(xp.cuda.MemoryHook):  # type: ignore[misc]
        """Bytes taken and not given back since the hook was registered."""

        name = "gradtool"

        def __init__(self) -> None:
            self.held = self.most = 0
            self._taken: dict[int, int] = {}

        def malloc_postprocess(self, **block: int) -> None:
            """A block was taken."""
            self._taken[block["mem_ptr"]] = block["mem_size"]
            self.held += block["mem_size"]
            self.most = max(self.most, self.held)

        def free_postprocess(self, **block: int) -> None:
            """A block was given back; one taken before the hook was there is none of ours."""
            self.held -= self._taken.pop(block["mem_ptr"], 0)

    return Counting()
