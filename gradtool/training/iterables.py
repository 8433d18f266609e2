"""Iterables of batches that Python has: loaders, generators, data sets with a length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.exec.array_interop import array_of, as_numpy
from gradtool.text.words import some
from gradtool.training.decoding import Array
from gradtool.training.input_spec import InputSpec
from gradtool.training.sampler import Indices

OVER = "is over after one epoch: give a function that returns a new one"
Guard = Callable[[str], AbstractContextManager[None]]


def named(given: Any, inputs: Iterable[str], what: str) -> Mapping[str, Any]:
    """A batch or an example by name: a tuple is of the inputs in the order of the model.

    Raises:
        UsageError: it is neither arrays by name, nor as many as there are inputs.
    """
    if isinstance(given, Mapping):
        return given
    names = list(inputs)
    given = tuple(given) if isinstance(given, list | tuple) else (given,)
    if len(given) == 1 and not (hasattr(given[0], "shape") or hasattr(given[0], "__array__")):
        raise UsageError(f"{what} is {type(given[0]).__name__}, arrays by name are needed")
    if len(given) != len(names):
        raise UsageError(
            f"{what} has {len(given)} arrays, the model takes {len(names)}: {some(names)}; yield "
            "them in this order, or by name"
        )
    return dict(zip(names, given, strict=True))


class Once:
    """An iterator as the batches of an epoch, which come once: who asks again is refused."""

    def __init__(self, source: str, items: Iterator[Any]) -> None:
        self._source, self._items = source, items
        self._is_taken = False

    def __call__(self, epoch: int) -> Iterator[Any]:
        """The batches of the first epoch. Raises UsageError if they were taken already."""
        del epoch
        if self._is_taken:
            raise UsageError(f"{self._source}: {OVER}")
        self._is_taken = True
        return self._items


def again(items: Iterable[Any], epoch: int) -> Iterable[Any]:
    """An iterable that can be restarted, told the epoch if it wants it."""
    for each in (items, getattr(items, "sampler", None)):
        if callable(getattr(each, "set_epoch", None)):
            each.set_epoch(epoch)  # type: ignore[union-attr]
    return items


@dataclass(frozen=True)
class Column:
    """One field of the examples of a data set, [examples, ...]."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    read: Callable[[Indices], Array]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that all examples would take."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize

    def take(self, indices: Indices, axis: int = 0) -> Array:
        """Some examples; axis is 0."""
        del axis
        return self.read(indices)


class Indexed:
    """A data set with a length, whose examples are asked for by their numbers."""

    def __init__(self, source: str, items: Any, guard: Guard) -> None:
        """Take a data set; `guard` tells what it raises as its own failure."""
        self.source, self._items, self._guard = source, items, guard
        self._held: tuple[bytes, list[Mapping[str, Any]]] = (b"", [])
        self._lock = Lock()

    def arrays(
        self, takes: InputSpec, names: Mapping[str, str]
    ) -> tuple[dict[str, Any], dict[str, str], list[str], dict[str, Any]]:
        """Columns by name; the rest is empty.

        Raises:
            UsageError: it has no examples, or they are none that have arrays.
        """
        del names
        count = len(self._items)
        if not count:
            raise UsageError(f"{self.source}: holds no examples")
        read = partial(self._read, tuple(takes.inputs))
        with self._lock:
            first = read(np.arange(1))[0]
        made = {}
        for name, given in first.items():
            array = _array(given)
            if array is not None:
                column = partial(self._column, read, name, array.shape)
                made[name] = Column(array.dtype, (count, *array.shape), column)
        return made, {}, [], {}

    def has_batches(self, takes: InputSpec) -> bool:
        """Whether what lies at the first place has an axis of examples already."""
        if not isinstance(self._items, list | tuple) or not self._items:
            return False
        first = named(self._items[0], takes.inputs, f"{self.source}: batch 0")
        found = {n: _array(first[n]) for n in takes.inputs if n in first}
        ranks = {n: takes.inputs[n].shape for n in found}
        return bool(found) and all(
            array is not None and (shape := ranks[n]) is not None and array.ndim == len(shape)
            for n, array in found.items()
        )

    def batches(self, epoch: int) -> Iterable[Any]:
        """Its items as the batches of any epoch."""
        del epoch
        items: Iterable[Any] = self._items
        return items

    def described(self) -> dict[str, Any]:
        """The fingerprint of the examples' numbers, as far as anybody knows."""
        return {"dataset": self.source}

    def _read(self, inputs: Sequence[str], indices: Indices) -> list[Mapping[str, Any]]:
        """Examples by number, which are held until others are asked for."""
        key = indices.tobytes()
        if self._held[0] != key:
            found = [
                named(self._item(number), inputs, f"{self.source}: example {number}")
                for number in indices.tolist()
            ]
            self._held = key, found
        return self._held[1]

    def _item(self, number: int) -> Any:
        with self._guard(f"{self.source}: example {number}"):
            return self._items[number]

    def _column(
        self, read: Callable[[Indices], list[Mapping[str, Any]]], name: str,
        shape: tuple[int, ...], indices: Indices,
    ) -> Array:  # fmt: skip
        with self._lock:
            examples = read(indices)
        made = []
        for number, each in zip(indices.tolist(), examples, strict=True):
            array = _array(each.get(name))
            if array is None or array.shape != shape:
                found = "nothing" if array is None else f"the shape {list(array.shape)}"
                raise UsageError(
                    f"{self.source}: {name!r} has {found} in example {number}, the first has "
                    f"{list(shape)}"
                )
            made.append(array)
        return np.stack(made)


def _array(given: Any) -> Array | None:
    """A number, a list of them or an array; None where it is none."""
    try:
        found = as_numpy(array_of(given)) if hasattr(given, "shape") else np.asarray(given)
    except ValueError:
        return None
    return found if found.dtype.kind in "biufV" else None
