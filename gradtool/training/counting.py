"""Counts of a whole batch that a loss in parts needs first: sums of its data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.exec.bound_model import Resident
from gradtool.exec.device import open_device
from gradtool.exec.shared_arena import Store
from gradtool.ranks.group import ALONE, Group
from gradtool.training.data import Arrays, BoundDataset
from gradtool.training.graphs import Graphs

Sums = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Counted:
    """Sums over examples of data, and the number of these."""

    sums: Sums
    examples: int

    def counts_nothing(self) -> bool:
        """Whether some sum has nothing in it, as where no label counts."""
        return any(array.size and not array.any() for array in self.sums.values())


class Counter:
    """Computes sums of data, and what inputs of a loss they make."""

    def __init__(self, graphs: Graphs, data: BoundDataset) -> None:
        parts = graphs.parts
        self._parts, self._data, self._type = parts, data, graphs.loss_type
        self._resident: Resident | None = None
        if parts.counts is not None:
            held = frozenset(parts.counts.graph.initializers)
            store = Store(open_device("cpu"))
            self._resident = Resident(parts.counts, store, "count", shared=held)

    def whole(self, batches: Iterable[Arrays], group: Group = ALONE) -> Counted:
        """The sums over some batches, and those of the other ranks of a group."""
        sums: dict[str, np.ndarray[Any, Any]] = {}
        examples = 0
        for batch in batches:
            count = self._data.size_of(batch)
            examples += count
            for name, array in self._of(batch, count).items():
                sums[name] = sums.get(name, 0.0) + array
        own = {"examples": examples, "sums": {n: a.tolist() for n, a in sums.items()}}
        told = [json.loads(each) for each in group.gather_bytes(json.dumps(own).encode())]
        found: dict[str, Any] = {}
        for each in told:
            for name, values in each["sums"].items():
                found[name] = found.get(name, 0.0) + np.asarray(values, np.float64)
        return Counted(found, sum(each["examples"] for each in told))

    def of_parts(self, pieces: Sequence[Arrays], examples: int, group: Group) -> Arrays:
        """The inputs of each part of a batch, which all have so many examples."""
        return self.feeds(self.whole(pieces, group), examples)

    def feeds(self, counted: Counted, examples: int) -> Arrays:
        """The inputs of a part with so many examples."""
        if counted.examples == 0:
            return {}
        made: Arrays = {}
        for name, kind in self._parts.ahead.items():
            value = counted.sums[name] / (counted.examples if kind == "mean" else 1)
            made[name] = np.asarray(value, self._types[name])
        if self._parts.share is not None:
            made[self._parts.share] = np.asarray(examples / counted.examples, self._type)
        return made

    def alone(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """A batch, with the batch-dependent inputs of a loss added if absent."""
        told = all(name in batch for name in self._parts.inputs)
        needs = self._data.takes.inputs if self._resident is None else self._resident.needs()
        if told or any(name not in batch for name in needs):
            return batch
        sums = {} if self._resident is None else self._run(batch, 1)
        return {**self.feeds(Counted(sums, 1), 1), **batch}

    @property
    def _types(self) -> dict[str, np.dtype[Any]]:
        assert self._parts.counts is not None  # noqa: S101 - asked where there are some
        outputs = self._parts.counts.graph.outputs
        return {v.name or "": np.dtype(v.dtype.numpy()) for v in outputs if v.dtype is not None}

    def _of(self, batch: Arrays, count: int) -> dict[str, np.ndarray[Any, Any]]:
        """The sums over the examples of one batch."""
        if self._resident is None:
            return {}
        return apart(self._data, batch, count, self._run)

    def _run(self, batch: Mapping[str, Any], count: int) -> dict[str, np.ndarray[Any, Any]]:
        assert self._resident is not None  # noqa: S101 - asked where there is something to run
        names = self._resident.needs()
        binding = self._resident.feed({name: batch[name] for name in names})
        binding.enter().step()
        outputs = binding.outlets.take(0.0, copy=True).outputs
        return {
            name: np.asarray(outputs[name], np.float64) * (count if kind == "mean" else 1)
            for name, kind in self._parts.ahead.items()
        }


def apart(
    data: BoundDataset, batch: Arrays, count: int, run: Callable[[Arrays, int], dict[str, Any]]
) -> dict[str, Any]:
    """Sums over the examples of a batch, in pieces of the model's batch size.

    A batch with fewer is filled up with its last example; so many of them are taken off again.
    """
    size = data.takes.size
    if size is None or count == size:
        return run(batch, count)
    found = run(repeated(data, batch, [*range(count), *[count - 1] * (size - count)]), size)
    alone = run(repeated(data, batch, [count - 1] * size), size)
    return {name: each - (size - count) / size * alone[name] for name, each in found.items()}


def repeated(data: BoundDataset, batch: Arrays, indices: list[int]) -> Arrays:
    """Some examples of a batch, some of them more than once."""
    made: Arrays = {}
    count = data.size_of(batch)
    for name, array in batch.items():
        axis = data.takes.axes[name]
        is_counted = axis is not None and array.shape[axis] == count
        made[name] = np.take(array, indices, axis) if is_counted else array
    return made
