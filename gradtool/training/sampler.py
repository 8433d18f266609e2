"""In which order examples are taken: by a seed, anew each epoch, and from any place on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Indices = np.ndarray[Any, np.dtype[np.integer[Any]]]


@dataclass(frozen=True)
class Place:
    """The position in the data: the epoch, and how many batches of it are done."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Order:
    """How `examples` are laid into batches of `size`; the last incomplete one is left out.

    The same numbers give the same order everywhere, and an epoch needs none of those before it.
    """

    examples: int
    size: int
    seed: int = 0
    shuffled: bool = True

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return self.examples // self.size

    def epoch(self, number: int, first: int = 0) -> Iterator[Indices]:
        """The indices of the batches of an epoch, from batch `first` on."""
        found = permutation(self.examples, self.seed, number) if self.shuffled else None
        for batch in range(first, self.batches):
            start, end = batch * self.size, (batch + 1) * self.size
            yield np.arange(start, end) if found is None else found[start:end]


def permutation(count: int, seed: int, epoch: int) -> Indices:
    """The order of an epoch: that of words drawn by PCG64, whose stream numpy keeps as it is.

    `Generator.permutation` may change from one numpy to the next.
    """
    words = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(count)
    return np.argsort(words, kind="stable")


def in_order(examples: int, size: int) -> Iterator[Indices]:
    """All examples once, the last batch as small as it is."""
    for start in range(0, examples, size):
        yield np.arange(start, min(start + size, examples))
