"""Arrays whose examples are decoded when a batch needs them, by threads.

Pillow and libsndfile decode without the interpreter's lock, so that threads do what processes
would, and share what they make.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from math import prod
from typing import Any

import numpy as np

from gradtool.training.sampler import Indices

Array = np.ndarray[Any, Any]
One = Callable[[int, int | None], Array]


@dataclass(frozen=True)
class Decoded:
    """An array [examples, ...] of which `one(example, epoch)` decodes an example.

    In an epoch examples may be drawn otherwise than in another; without one they are as they are.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    one: One
    workers: int = 1

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that all examples would take."""
        return prod(self.shape) * self.dtype.itemsize

    def take(self, indices: Indices, axis: int = 0, epoch: int | None = None) -> Array:
        """Some examples, [count, ...]; axis is 0."""
        del axis
        made = np.empty((len(indices), *self.shape[1:]), self.dtype)
        run = map if self.workers == 1 else _pool(self.workers).map  # a batch has its own thread
        for place, array in enumerate(run(self.one, indices.tolist(), repeat(epoch))):
            made[place] = array
        return made


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, "gradtool-decode")


def draws(seed: int, epoch: int, example: int, count: int) -> list[int]:
    """Words of 64 bits, a function of seed, epoch and example alone: PCG64 keeps its stream."""
    words = np.random.PCG64(np.random.SeedSequence([seed, epoch, example])).random_raw(count)
    return [int(word) for word in words]
