"""The batches of a training, and the share of each that a rank computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.ranks.group import Group, share
from gradtool.training.data import Arrays, BoundDataset
from gradtool.training.padding import Lengths
from gradtool.training.sampler import Order, Place


@dataclass(frozen=True)
class Batches:
    """Batches of data in an order, None where they come in their own, taken in `parts`.

    They are padded to `lengths`.
    """

    data: BoundDataset
    order: Order | None
    parts: int
    group: Group
    lengths: Lengths | None = None

    def beginning(self, first: Place) -> Iterator[tuple[Arrays, bool]]:
        """Batches from a place on, for ever; with each, whether it is the last of its epoch.

        Raises:
            UsageError: an epoch has none, or parts and ranks do not divide one.
        """
        number, start = first.epoch, first.batch
        while True:
            if self.order is None:
                yield from self._streamed(number, start)
            else:
                last = self.order.batches - 1
                for place, indices in enumerate(self.order.epoch(number, start), start):
                    batch = self.data.batch(indices[self._own(len(indices))], number)
                    yield self._padded(batch), place == last
            number, start = number + 1, 0

    def _streamed(self, number: int, start: int) -> Iterator[tuple[Arrays, bool]]:
        """The batches of an epoch of a stream, which only ends when there is none left."""
        before: Arrays | None = None
        for batch in map(self._own_part, self.data.epoch(number, start)):
            if before is not None:
                yield self._padded(before), False
            before = batch
        if before is None:
            raise UsageError(f"{self.data.source.source}: has no batch in epoch {number}")
        yield self._padded(before), True

    def _padded(self, batch: Arrays) -> Arrays:
        return batch if self.lengths is None else self.lengths.padded(batch)

    def _own(self, count: int) -> np.ndarray[Any, Any]:
        """This rank's share of a batch of `count` examples: its share of each part."""
        parts, ranks = self.parts, self.group.size
        if count % (parts * ranks):
            raise UsageError(f"a batch of {count} has no {parts * ranks} parts of the same size")
        own = share(count // parts, self.group.rank, ranks)
        return np.arange(count).reshape(parts, -1)[:, own].ravel()

    def _own_part(self, batch: Arrays) -> Arrays:
        if self.group.size == 1:
            return batch
        return self.data.chosen(batch, self._own(self.data.size_of(batch)))
