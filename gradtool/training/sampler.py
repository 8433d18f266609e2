"""In which order examples are taken: by a seed, anew each epoch, and from any place on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_TOGETHER = 64  # batches whose examples are sorted by length
_TURNS = 1 << 33  # behind any epoch: their orders are those of batches
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
    Shuffled examples that have `lengths` are laid into batches with others of about their own.
    """

    examples: int
    size: int
    seed: int = 0
    shuffled: bool = True
    lengths: Indices | None = field(default=None, compare=False)

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return self.examples // self.size

    def epoch(self, number: int, first: int = 0) -> Iterator[Indices]:
        """The indices of the batches of an epoch, from batch `first` on."""
        found = permutation(self.examples, self.seed, number) if self.shuffled else None
        turns: Indices = np.arange(self.batches)
        if found is not None and self.lengths is not None:
            found, turns = (
                self._alike(found, self.lengths),
                permutation(self.batches, self.seed, _TURNS + number),
            )
        for batch in turns[first:].tolist():
            start, end = batch * self.size, (batch + 1) * self.size
            yield np.arange(start, end) if found is None else found[start:end]

    def _alike(self, order: Indices, lengths: Indices) -> Indices:
        """An order sorted by length within each `_TOGETHER` batches."""
        step, kept = _TOGETHER * self.size, self.batches * self.size
        parts = [order[start : min(start + step, kept)] for start in range(0, kept, step)]
        return np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts])


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
