"""Data held against what a model takes: names, types, shapes, and the axis of the examples."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import onnx_ir as ir

from gradtool.errors import MissingData, UsageError
from gradtool.exec import feeds
from gradtool.exec.array_interop import array_of, as_numpy
from gradtool.io.stored import Stored
from gradtool.losses.labels import COPIED
from gradtool.text.words import some, suggest
from gradtool.training.checks import Check, checks_of, converted, range_of
from gradtool.training.metrics import Target
from gradtool.training.sampler import Indices
from gradtool.training.sources import Array, Batch, Examples, Source, Stream

COMPARED = 64  # examples whose labels are held against other inputs
LOOKED_AT, _AT_ONCE = 1 << 30, 1 << 24  # bytes of an array that is looked through, and how
Arrays = dict[str, Array]


@dataclass(frozen=True)
class InputSpec:
    """What a model takes of data: inputs by name, and the axis along which each has examples.

    `symbol` is what the inputs call the number of examples, `size` that which the model itself
    fixes, None where it is open.
    """

    model: ir.Model
    inputs: Mapping[str, ir.Value]
    axes: Mapping[str, int | None]
    size: int | None
    symbol: str | None = None

    @classmethod
    def of(cls, model: ir.Model, also: Iterable[str] = (), labels: Collection[str] = ()) -> Self:
        """The inputs without a default; those `also` named come from elsewhere.

        Where inputs leave the number of examples open and the `labels` that outputs are held
        against do not, nodes fix it.
        """
        known = {*feeds.defaults(model), *feeds.buffers(model), *also}
        inputs = {v.name or "": v for v in feeds.inputs_of(model) if v.name not in known}
        for value in inputs.values():
            feeds.require_tensor(value)
        symbol, size = _leading(inputs.values())
        if symbol is not None:
            size = next(_fixed(inputs[name] for name in labels if name in inputs), None)
        axes = {name: _axis(value, symbol, size) for name, value in inputs.items()}
        return cls(model, inputs, axes, size, symbol)


def _leading(inputs: Iterable[ir.Value]) -> tuple[str | None, int | None]:
    """The symbol that the examples of a batch are counted by, or their fixed number.

    That is the symbol called batch, or the leading one of the first input that has any axes; where
    that input has no open axis at the front, its only open axis.
    """
    shaped = [v.shape for v in inputs if v.shape is not None and len(v.shape)]
    named = [str(d.value) for s in shaped for d in s if isinstance(d, ir.SymbolicDim) and d.value]
    if "batch" in named:
        return "batch", None
    if not shaped:
        return None, None
    first = shaped[0][0]
    if isinstance(first, ir.SymbolicDim):
        return (str(first.value) if first.value is not None else None), None
    alone = [d for d in shaped[0] if isinstance(d, ir.SymbolicDim)]
    if len(alone) == 1 and alone[0].value is not None:
        return str(alone[0].value), None
    return None, first


def _fixed(inputs: Iterable[ir.Value]) -> Iterator[int]:
    """The leading sizes of shapes that leave nothing open."""
    shapes = (value.shape for value in inputs)
    return (s.numpy()[0] for s in shapes if s is not None and len(s) and s.is_static())


def _axis(value: ir.Value, symbol: str | None, size: int | None) -> int | None:
    """The axis of the examples of an input; None if each batch has all of it."""
    if value.shape is None:
        return 0
    dims = list(value.shape)
    if symbol is not None:
        for axis, dim in enumerate(dims):
            if isinstance(dim, ir.SymbolicDim) and dim.value == symbol:
                return axis
    if not dims or (isinstance(dims[0], int) and dims[0] != size):
        return None
    return 0


class BoundDataset:
    """A source of data as a model takes it.

    `said` are lines for people: types that are changed, arrays that are left aside.
    """

    def __init__(self, source: Source, takes: InputSpec, names: Mapping[str, str]) -> None:
        """Match names: `names` has those of the data by those of inputs, where they differ.

        Raises:
            MissingData: there is nothing for an input.
            UsageError: an array has another type or shape than its input, or is empty; arrays
                have different numbers of examples; an input has no such name.
        """
        self.source, self.takes = source, takes
        self.said: list[str] = []
        unknown = next((name for name in names if name not in takes.inputs), None)
        if unknown is not None:
            hint = suggest(unknown, takes.inputs) or f"; it takes {some(takes.inputs)}"
            raise UsageError(f"--map {unknown}={names[unknown]}: the model has no such input{hint}")
        self._names = {name: names.get(name, name) for name in takes.inputs}
        self._checks: dict[str, Check] = {}
        self.examples: int | None = None
        if isinstance(source, Examples):
            self._require_names(source.arrays)
            aside = [name for name in source.arrays if name not in self._names.values()]
            if aside:
                self.said.append(f"{source.source}: left aside: {some(aside)}")
            self.examples = self._counted(source.arrays)
            self._sample(source)
        self._checks = checks_of(takes.inputs, source.source)

    @property
    def names(self) -> Mapping[str, str]:
        """What each input is called in the data."""
        return self._names

    def targets(self, shifts: Mapping[str, int]) -> dict[str, Target]:
        """Which integers among the inputs count as labels, and which are ahead by `shifts`."""
        return {
            name: Target(found.ignored if (found := range_of(value)) else None, shifts.get(name, 0))
            for name, value in self.takes.inputs.items()
            if value.dtype is not None and value.dtype.is_integer()
        }

    def copied(self, labels: Collection[str], shifts: Collection[str]) -> list[str]:
        """What people should hear of labels that are the numbers of another input."""
        if self.examples is None:
            return []
        some = self.batch(np.arange(min(COMPARED, self.examples)))
        return [
            COPIED.format(self._names[name], self._names[other])
            for name in labels if name in some and name not in shifts and some[name].ndim > 1
            for other, array in some.items()
            if other != name and array.dtype.kind in "iu" and np.array_equal(array, some[name])
        ]  # fmt: skip

    def described(self) -> dict[str, Any]:
        """What tells whether data are the same: types and sizes by name."""
        if isinstance(self.source, Stream):
            return {"stream": self.source.source}
        arrays = self.source.arrays
        return {
            name: f"{arrays[of].dtype}{list(arrays[of].shape)}" for name, of in self._names.items()
        }

    def look_through(self) -> None:
        """Check the numbers of all examples, but for arrays of more than `LOOKED_AT` bytes.

        These, and streams, are checked batch by batch as they come.

        Raises:
            UsageError: a number is none that the model takes; the example is named.
        """
        if not isinstance(self.source, Examples) or self.examples is None:
            return
        for name, of in self._names.items():
            array, axis = self.source.arrays[of], self.takes.axes[name]
            check = self._checks.get(name)
            if check is None or array.nbytes > LOOKED_AT:
                continue
            step = max(self.examples * _AT_ONCE // max(array.nbytes, 1), 1)
            for start in range(0, 1 if axis is None else self.examples, step):
                indices = np.arange(start, min(start + step, self.examples))
                taken = {name: self._taken(array, axis, indices)}
                check(self._converted(taken, indices), indices)

    # ------------------------------------------------------------------- batches

    def batch(self, indices: Indices) -> Arrays:
        """The examples of some indices, in the types of the inputs.

        Raises:
            UsageError: a file has changed, or a number in it is none that the model takes.
        """
        assert isinstance(self.source, Examples)  # noqa: S101 - streams have no indices
        self.source.require_same()
        made = {
            name: self._taken(self.source.arrays[of], self.takes.axes[name], indices)
            for name, of in self._names.items()
        }
        made = self._converted(made, indices)
        for check in self._checks.values():
            check(made, indices)
        return made

    def batches(self, order: Iterable[Indices]) -> Iterator[Arrays]:
        """The batches of an order."""
        return map(self.batch, order)

    def epoch(self, number: int, first: int = 0) -> Iterator[Arrays]:
        """The batches that a stream has for an epoch, from batch `first` on."""
        assert isinstance(self.source, Stream)  # noqa: S101 - examples have an order
        counted = 0
        for index, batch in enumerate(self.source.make(number)):
            made = self._of_stream(batch) if index >= first else None
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

    def _require_names(self, arrays: Batch) -> None:
        for name, of in self._names.items():
            if of not in arrays:
                there = some(arrays) or "nothing"
                raise MissingData(
                    f"{self.source.source}: nothing for input {name!r}; it holds {there}: "
                    f"name it with --map {name}=NAME"
                )

    def _counted(self, arrays: Mapping[str, Array | Stored]) -> int:
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
        made = {
            name: self._taken(source.arrays[of], self.takes.axes[name], np.arange(count))
            for name, of in self._names.items()
        }
        for name, array in made.items():
            self._say_type(name, array)
        self._require_shapes(self._converted(made, np.arange(count)))

    def _say_type(self, name: str, array: Array) -> None:
        dtype = self._dtype(name)
        if dtype is not None and array.dtype != dtype and np.can_cast(
            array.dtype, dtype, "same_kind"
        ):  # fmt: skip
            how = "" if np.can_cast(array.dtype, dtype, "safe") else ", rounded"
            self.said.append(
                f"{self.source.source}: {self._names[name]!r} is {array.dtype}, taken as "
                f"{dtype}{how}"
            )

    def _require_shapes(self, made: Arrays) -> None:
        try:
            feeds.sizes(self.takes.model, made)
        except UsageError as error:
            raise UsageError(f"{self.source.source}: {error}") from error

    def _of_stream(self, batch: Batch) -> Arrays:
        self._require_names(batch)
        made: Arrays = {}
        for name, of in self._names.items():
            try:
                made[name] = as_numpy(array_of(batch[of]))
            except ValueError as error:
                raise UsageError(f"{self.source.source}: {of!r} is no array ({error})") from error
        made = self._converted(made)
        self._require_shapes(made)
        if not self.size_of(made):
            raise UsageError(f"{self.source.source}: a batch holds no examples")
        return made

    def _dtype(self, name: str) -> np.dtype[Any] | None:
        dtype = self.takes.inputs[name].dtype
        return None if dtype is None else np.dtype(dtype.numpy())

    def _converted(self, arrays: Arrays, indices: Indices | None = None) -> Arrays:
        """Arrays in the types of the inputs, where no other kind of number is meant."""
        made: Arrays = {}
        for name, array in arrays.items():
            dtype = self._dtype(name)
            if dtype is None or array.dtype == dtype:
                made[name] = array
            elif np.can_cast(array.dtype, dtype, "same_kind"):
                what = f"{self.source.source}: {self._names[name]!r}"
                made[name] = converted(array, dtype, what, indices)
            else:
                try:
                    made[name] = feeds.in_type_of(self.takes.inputs[name], array, "")
                except UsageError:
                    raise UsageError(
                        f"{self.source.source}: {self._names[name]!r} is {array.dtype}, the model "
                        f"takes {dtype}"
                    ) from None
        return made

    @staticmethod
    def _taken(array: Array | Stored, axis: int | None, indices: Indices) -> Array:
        return np.asarray(array) if axis is None else array.take(indices, axis)
