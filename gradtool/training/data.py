"""Data held against what a model takes: names, types, shapes, and the axis of the examples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any, Self

import numpy as np

from gradtool.errors import MissingData, UsageError
from gradtool.exec import feeds
from gradtool.graph.metadata import notes
from gradtool.text.words import some, suggest
from gradtool.training.checks import Check, checks_of, range_of
from gradtool.training.columns import Unread, chosen, stacked
from gradtool.training.converting import Converter
from gradtool.training.data_options import DataOptions
from gradtool.training.decoding import Decoded
from gradtool.training.images import Scale
from gradtool.training.input_spec import InputSpec
from gradtool.training.iterables import Column, named
from gradtool.training.metrics import Target
from gradtool.training.sampler import Indices
from gradtool.training.sources import Array, Examined, Examples, Lazy, Source, Stream, numpy_of
from gradtool.training.text import TextRows

Arrays = dict[str, Array]
CLASSES = "gradtool.classes"
LOOKED_AT, _AT_ONCE = 1 << 30, 1 << 24  # bytes of an array that is looked through, and how


class BoundDataset:
    """A source of data as a model takes it.

    `said` are lines for people: types that are changed, arrays that are left aside.
    """

    def __init__(
        self,
        source: Source,
        takes: InputSpec,
        names: Mapping[str, str],
        options: DataOptions | None = None,
        like: BoundDataset | None = None,
    ) -> None:
        """Match names: `names` has those of the data by those of inputs, where they differ.

        Labels that begin at 1 in the data that these are `like` do so here.

        Raises:
            MissingData: there is nothing for an input.
            UsageError: an array has another type or shape than its input, or is empty; arrays
                have different numbers of examples; an input has no such name.
        """
        self.takes = takes
        self._rows: Indices | None = None
        unknown = next((name for name in names if name not in takes.inputs), None)
        if unknown is not None:
            hint = suggest(unknown, takes.inputs) or f"; it takes {some(takes.inputs)}"
            raise UsageError(f"--map {unknown}={names[unknown]}: the model has no such input{hint}")
        self.source = source.bound(takes, names) if isinstance(source, Lazy) else source
        told = self.source.names if isinstance(self.source, Examples) else {}
        self._names = {name: names.get(name, told.get(name, name)) for name in takes.inputs}
        self.said: list[str] = []
        self._checks: dict[str, Check] = {}
        scale, is_said = Scale.of(takes.model, options or DataOptions())
        self.converter = Converter(
            self.source.source, takes, self._names, scale if is_said else None, self.said
        )
        self.examples: int | None = None
        if isinstance(self.source, Examples):
            self._bind(self.source, like)
        self._checks = checks_of(takes.inputs, self.source.source)

    def _bind(self, source: Examples, like: BoundDataset | None) -> None:
        """Find an array for each input, and how it is turned to what the input takes."""
        self.said += source.said
        arrays, used = self._stacked(source)
        self._require_names(arrays)
        self._arrays = {of: arrays[of] for of in self._names.values()}
        for each in self._arrays.values():
            if isinstance(each, Unread):
                raise UsageError(each.why)
        aside = [name for name in arrays if name not in self._arrays and name not in used]
        if aside:
            self.said.append(f"{source.source}: left aside: {some(aside)}")
        self.examples = self._counted(self._arrays)
        noted = notes(self.takes.model).get(CLASSES)
        if noted is not None and self.classes and noted != json.dumps(self.classes):
            self.said.append(f"warning: {source.source}: its classes are not those that the model "
                             "was trained on, or in another order")  # fmt: skip
        for name, of in self._names.items():
            self.converter.bind(name, self._arrays[of], None if like is None else like.converter)
        self._sample(source)

    @property
    def names(self) -> Mapping[str, str]:
        """The data's name of each input."""
        return self._names

    def targets(self, shifts: Mapping[str, int]) -> dict[str, Target]:
        """The integer inputs that count as labels, and those ahead by `shifts`."""
        return {
            name: Target(found.ignored if (found := range_of(value)) else None, shifts.get(name, 0))
            for name, value in self.takes.inputs.items()
            if value.dtype is not None and value.dtype.is_integer()
        }

    @property
    def texts(self) -> TextRows | None:
        """The rows of tokens that the examples are, where they are texts."""
        text = self.source.text if isinstance(self.source, Examples) else None
        return None if text is None else TextRows(text, self._rows)

    def described(self) -> dict[str, Any]:
        """The fingerprint of data: types and sizes by name."""
        if isinstance(self.source, Stream):
            return {"stream": self.source.source}
        found: dict[str, Any] = {
            name: f"{self._arrays[of].dtype}{list(self._arrays[of].shape)}"
            for name, of in self._names.items()
        }
        if self.classes:
            found["classes"] = self.classes
        if self._rows is not None:
            found["examples"] = len(self._rows)
        return found | dict(self.source.about)

    @property
    def classes(self) -> dict[str, list[str]]:
        """The names of classes by the input that takes their numbers."""
        known = self.source.classes if isinstance(self.source, Examples) else {}
        return {name: list(known[of]) for name, of in self._names.items() if of in known}

    @property
    def notes(self) -> dict[str, str]:
        """Metadata of a model that is trained on these: its classes, and how examples were made."""
        kept = dict(self.source.kept) if isinstance(self.source, Examples) else {}
        if self.classes:
            kept[CLASSES] = self.classes
        return {key: json.dumps(value) for key, value in kept.items()}

    def look_through(self) -> None:
        """Check the numbers of all examples, but for arrays of more than `LOOKED_AT` bytes.

        These, and streams, are checked batch by batch as they come.

        Raises:
            UsageError: a number is none that the model takes; the example is named.
        """
        if not isinstance(self.source, Examples) or self.examples is None:
            return
        for name, of in self._names.items():
            array, axis = self._arrays[of], self.takes.axes[name]
            check = self._checks.get(name)
            lies_there = not isinstance(array, Decoded | Column)
            if check is None or array.nbytes > LOOKED_AT or not lies_there:
                continue
            step = max(self.examples * _AT_ONCE // max(array.nbytes, 1), 1)
            for start in range(0, 1 if axis is None else self.examples, step):
                indices = self._numbers(np.arange(start, min(start + step, self.examples)))
                taken = {name: self._taken(array, axis, indices)}
                check(self.converter.convert(taken, indices), indices)

    def restricted(self, rows: Indices) -> Self:
        """The same data, restricted to some rows."""
        made = copy(self)
        made._rows, made.examples = rows, len(rows)  # noqa: SLF001 - it is one of this class
        made.said = []
        return made

    def batch(self, indices: Indices, epoch: int | None = None) -> Arrays:
        """The examples of some indices, in the types of the inputs; drawn, where of an epoch.

        Raises:
            UsageError: a file has changed, or a number in it is none that the model takes.
        """
        assert isinstance(self.source, Examples)  # noqa: S101 - streams have no indices
        self.source.require_same()
        indices = self._numbers(indices)
        made = {
            name: self._taken(self._arrays[of], self.takes.axes[name], indices, epoch)
            for name, of in self._names.items()
        }
        made = self.converter.convert(made, indices)
        for check in self._checks.values():
            check(made, indices)
        return made

    def batches(self, order: Iterable[Indices]) -> Iterator[Arrays]:
        """The batches of an order."""
        return map(self.batch, order)

    def first(self) -> Arrays | None:
        """The first batch of a stream, which is still to come; None where it has none."""
        assert isinstance(self.source, Stream)  # noqa: S101 - examples have an order
        return next((self._of_stream(given, 0) for given in self.source.first()), None)

    def epoch(self, number: int, first: int = 0) -> Iterator[Arrays]:
        """The batches that a stream has for an epoch, from batch `first` on."""
        assert isinstance(self.source, Stream)  # noqa: S101 - examples have an order
        counted = 0
        for index, batch in enumerate(self.source.epoch(number)):
            made = self._of_stream(batch, index) if index >= first else None
            if made is not None:
                start = np.arange(counted, counted + self.size_of(made))
                for check in self._checks.values():
                    check(made, start)
                yield made
                counted += len(start)

    def size_of(self, batch: Mapping[str, Array]) -> int:
        """How many examples a batch has."""
        for name, axis in self.takes.axes.items():
            if axis is not None:
                return int(batch[name].shape[axis])
        return 1

    def part(self, batch: Mapping[str, Array], start: int, end: int) -> Arrays:
        """Some examples of a batch, one after the other; views where they lie so."""
        return {
            name: array if (axis := self.takes.axes[name]) is None
            else array[(slice(None),) * axis + (slice(start, end),)]
            for name, array in batch.items()
        }  # fmt: skip

    def chosen(self, batch: Mapping[str, Array], indices: Indices) -> Arrays:
        """Some examples of a batch, by their numbers in it."""
        axes = self.takes.axes
        return {name: self._taken(array, axes[name], indices) for name, array in batch.items()}

    # -------------------------------------------------------------------- fitting

    def _require_names(self, arrays: Mapping[str, Any]) -> None:
        for name, of in self._names.items():
            if of not in arrays:
                there = some(arrays) or "nothing"
                raise MissingData(
                    f"{self.source.source}: nothing for input {name!r}; it holds {there}: "
                    f"name it with --map {name}=NAME"
                )

    def _counted(self, arrays: Mapping[str, Examined]) -> int:
        """How many examples there are."""
        counts: dict[str, int] = {}
        for name, of in self._names.items():
            axis, array = self.takes.axes[name], arrays[of]
            if axis is not None and array.ndim <= axis:
                raise UsageError(
                    f"{self.source.source}: {of!r} has shape {list(array.shape)}, the model takes "
                    f"{self.takes.inputs[name].shape}"
                )
            if axis is not None:
                counts[of] = int(array.shape[axis])
        sizes = dict.fromkeys(counts.values())
        if len(sizes) > 1:
            told = ", ".join(f"{name!r} {count}" for name, count in counts.items())
            raise UsageError(f"{self.source.source}: different numbers of examples: {told}")
        if not counts:
            raise UsageError("no input of the model has an axis of examples")
        if not next(iter(sizes)):
            raise UsageError(f"{self.source.source}: holds no examples")
        (count,) = sizes
        return count

    def _sample(self, source: Examples) -> None:
        """Hold types and shapes against the model, and note what has to be converted."""
        count = self.takes.size or 1
        if self.examples is not None and self.examples < count:
            raise UsageError(
                f"{source.source}: {self.examples} examples, and the model takes {count} at a time"
            )
        indices = np.arange(count)
        made = {
            name: self._taken(self._arrays[of], self.takes.axes[name], indices)
            for name, of in self._names.items()
        }
        for name, array in self.converter.adapt(made, indices).items():
            self.converter.say_type(name, array)
        self._require_shapes(self.converter.convert(made, indices))

    def _require_shapes(self, made: Arrays) -> None:
        try:
            feeds.sizes(self.takes.model, made)
        except UsageError as error:
            raise UsageError(f"{self.source.source}: {error}") from error

    def _of_stream(self, given: Any, number: int) -> Arrays:
        assert isinstance(self.source, Stream)  # noqa: S101 - the callers' is one
        try:
            return self._fitted(given, number)
        except UsageError as error:
            raise type(error)(f"{error}{self.source.place}") from error

    def _fitted(self, given: Any, number: int) -> Arrays:
        batch, made = named(given, self.takes.inputs, f"{self.source.source}: batch {number}"), {}
        self._require_names(batch)
        for name, of in self._names.items():
            made[name] = numpy_of(self.source.source, of, batch[of])
            self.converter.bind_shape(name, made[name].shape, made[name].dtype)
        made = self.converter.convert(made)
        self._require_shapes(made)
        if self.size_of(made):
            return made
        raise UsageError(f"{self.source.source}: a batch holds no examples")

    def _stacked(self, source: Examples) -> tuple[dict[str, Examined], set[str]]:
        """All arrays, with the columns of an input put side by side; which these are."""
        arrays: dict[str, Examined] = dict(source.arrays)
        used: set[str] = set()
        for name, of in self._names.items():
            others = [each for other, each in self._names.items() if other != name]
            found = chosen(of, list(source.arrays), others)
            if found is None:
                continue
            if not found:
                raise MissingData(
                    f"{source.source}: --map {name}={of}: no such column; it holds "
                    f"{some(source.arrays)}"
                )
            dtype = self.converter.dtype(name)
            is_float = dtype is not None and dtype.kind == "f"
            arrays[of] = stacked(source.source, source.arrays, found, dtype if is_float else None)
            used.update(found)
            self.said.append(f"{source.source}: {name!r} is {len(found)} columns: {some(found)}")
        return arrays, used

    def _numbers(self, indices: Indices) -> Indices:
        """The numbers in the source of some examples."""
        return indices if self._rows is None else self._rows[indices]

    @staticmethod
    def _taken(
        array: Examined, axis: int | None, indices: Indices, epoch: int | None = None
    ) -> Array:
        if axis is None:
            return np.asarray(array)
        if isinstance(array, Decoded):
            return array.take(indices, axis, epoch)
        return array.take(indices, axis)
