"""How tests call native kernels: between guards, at several thread counts, per instruction set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from gradtool.native import library

GUARD = 1024  # floats on either side of what a kernel may write
PATTERN = np.uint32(0x7FC0BEEF)  # a NaN: what is read before it is written shows in the results
THREADS = (1, 2, 3)
FOUND, WHY = library.status()
INSTRUCTIONS = library.load().instructions if FOUND else ("none",)

needs_library = pytest.mark.skipif(FOUND is None, reason=f"no native kernels: {WHY}")
each_instruction_set = (
    pytest.mark.parametrize("instructions", INSTRUCTIONS, indirect=True),
    pytest.mark.usefixtures("instructions"),
)


class Guarded:
    """An array filled with NaN between two guards."""

    def __init__(self, shape: Sequence[int], offset: int = 0) -> None:
        size = int(np.prod(shape, dtype=int))
        self._all = np.full(size + 2 * GUARD + offset, PATTERN, np.uint32)
        self._inner = slice(GUARD + offset, GUARD + offset + size)
        self.array = self._all[self._inner].view(np.float32).reshape(shape)

    def check(self) -> None:
        """The guards are as they were."""
        assert (self._all[: self._inner.start] == PATTERN).all(), "written before its start"
        assert (self._all[self._inner.stop :] == PATTERN).all(), "written beyond its end"


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Kernels take up to `count` threads."""
    before = library.threads()
    library.set_threads(count)
    try:
        yield
    finally:
        library.set_threads(before)


def run(
    bound: Callable[..., Callable[[], None]],
    *shapes: Sequence[int],
    work: int = 0,
    inputs: Sequence[np.ndarray] = (),
    start: Sequence[np.ndarray | None] = (),
) -> list[np.ndarray]:
    """What the call of `bound(*outputs, work)` writes, the same bits at every thread count.

    `work` is the size of the workspace in bytes; `start` is what outputs hold before.  Outputs and
    workspace are NaN before, and guarded; the bytes of `inputs` stay as they are.
    """
    held = [each.tobytes() for each in inputs]
    results: list[list[np.ndarray]] = []
    for count in THREADS:
        # Addresses are multiples of 4 bytes only, others in each run.
        rooms = [Guarded(shape, offset=count) for shape in shapes]
        for room, content in zip(rooms, start, strict=False):
            if content is not None:
                room.array[...] = content
        space = Guarded((-(-work // 4),), offset=count)
        with threads(count):
            bound(*(room.array for room in rooms), space.array)()
        for room in (*rooms, space):
            room.check()
        results.append([room.array for room in rooms])
    assert held == [each.tobytes() for each in inputs], "an input was written"
    for others in results[1:]:
        for first, other in zip(results[0], others, strict=True):
            assert first.tobytes() == other.tobytes(), "bits depend on threads"
    return results[0]


def relative_error(found: np.ndarray, exact: np.ndarray, least: float = 1.0) -> float:
    """The largest difference, relative to the largest value or to `least`."""
    assert found.shape == exact.shape
    scale = np.abs(exact).max(initial=least)
    difference = np.abs(found.astype(np.float64) - exact)
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0) / scale)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Standard normal float32."""
    return rng.standard_normal(shape, np.float32)
