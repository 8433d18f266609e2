"""The outputs of a model for all examples of some data, in batches, and the files they go to."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.exec import available_memory, feeds
from gradtool.exec.bound_model import Resident
from gradtool.exec.shared_arena import Store
from gradtool.io import arrays as npz
from gradtool.io import atomic
from gradtool.operators.kernel_sets import Kernels
from gradtool.text.extras import install
from gradtool.text.words import some, suggest
from gradtool.training.accumulators import Accumulator
from gradtool.training.counting import repeated
from gradtool.training.data import Arrays, BoundDataset
from gradtool.training.examples import fixed_inside
from gradtool.training.input_spec import InputSpec
from gradtool.training.metrics import Metric
from gradtool.training.sampler import in_order
from gradtool.training.sources import Examples, Source

SUFFIXES = (".npz", ".csv", ".parquet")
MOST_COLUMNS = 16_384  # of a table, as spreadsheets have them


def with_outputs(model: ir.Model, names: Sequence[str]) -> ir.Model:
    """A copy of a forward model that returns some outputs; all where none is named.

    Raises:
        UsageError: there is no such output.
    """
    made = model.clone()
    made.meta.update(model.meta)
    known = {v.name or "": v for v in made.graph.outputs}
    for name in names:
        if name not in known:
            raise UsageError(
                f"--outputs {name}: the model has no such output"
                f"{suggest(name, known) or f'; there are {some(known)}'}"
            )
    made.graph.outputs[:] = [known[name] for name in dict.fromkeys(names)] or list(known.values())
    return made


@dataclass(frozen=True)
class Predictor:
    """A model with data, of which `size` examples are computed at once.

    The data are the inputs of the model, and arrays beside them for `metrics`.
    """

    model: ir.Model
    source: Source
    names: Mapping[str, str]
    size: int
    metrics: Sequence[Metric]
    store: Store
    kernels: Kernels

    @cached_property
    def data(self) -> BoundDataset:
        """The data, held against what the model takes. Raises UsageError if they do not fit."""
        takes = InputSpec.of(self.model)
        beside = {name: ir.Value(name=name) for name in self._beside(takes)}
        takes = replace(
            takes,
            inputs={**takes.inputs, **beside},
            axes={**takes.axes, **dict.fromkeys(beside, 0)},
        )
        data = BoundDataset(self.source, takes, self.names)
        fixed = takes.size or self._fixed_inside(data)
        return data if fixed == takes.size else BoundDataset(
            self.source, replace(takes, size=fixed), self.names
        )  # fmt: skip

    def _beside(self, takes: InputSpec) -> list[str]:
        """The arrays that metrics read: labels, and for code of the user's all that there are."""
        known = dict.fromkeys(m.labels for m in self.metrics if m.measure is not None)
        if isinstance(self.source, Examples) and any(m.measure is None for m in self.metrics):
            lengths = {name: array.shape[:1] for name, array in self.source.arrays.items()}
            taken = [self.names.get(name, name) for name in takes.inputs]
            count = next((lengths[n] for n in taken if n in lengths), None)
            known |= dict.fromkeys(n for n, each in lengths.items() if each == count)
            known = {name: None for name in known if name not in taken}
        return [name for name in known if name not in takes.inputs]

    def _fixed_inside(self, data: BoundDataset) -> int | None:
        """The examples that nodes fix, though inputs leave them open."""
        if data.examples is None:
            return None
        part = min(self.size, data.examples)

        def dims_of(model: ir.Model, count: int) -> Mapping[str, int]:
            batch = self._inputs(data.batch(np.arange(count)))
            found = feeds.sizes(model, batch)
            return {name: found[name] for name in found}

        return fixed_inside(self.model, dims_of, part, data.examples)

    def batches(self) -> Iterator[tuple[Arrays, Arrays, int]]:
        """Outputs, the batch that they are of, and its examples; views until the next one."""
        data, size = self.data, self.data.takes.size or self.size
        resident = Resident(
            self.model, self.store, "predict", self.kernels,
            shared=frozenset(self.model.graph.initializers),
        )  # fmt: skip
        given = data.epoch(0) if data.examples is None else data.batches(
            in_order(data.examples, size)
        )  # fmt: skip
        for batch in given:
            count, run = data.size_of(batch), batch
            if data.takes.size not in (None, count):
                run = repeated(data, batch, [*range(count), *[count - 1] * (size - count)])
            binding = resident.feed(self._inputs(run))
            with np.errstate(all="ignore"):
                binding.enter().step()
            found = binding.outlets.take(0.0, copy=False).outputs
            yield (
                {
                    name: array[:count] if array.shape[:1] == (data.size_of(run),) else array
                    for name, array in found.items()
                },
                batch,
                count,
            )

    def _inputs(self, batch: Arrays) -> Arrays:
        own = {v.name for v in self.model.graph.inputs}
        return {name: array for name, array in batch.items() if name in own}

    def run(self, tell: Callable[[int], None]) -> Predicted:
        """Compute all; `tell` hears of each batch how many examples it has.

        Raises:
            UsageError: data cannot be used, a metric cannot be had, or outputs have other sizes in
                other batches.
            DeviceError: memory has no room for all outputs.
        """
        accumulators = [metric.start() for metric in self.metrics]
        each: list[Arrays] = []
        done = taken = 0
        for outputs, batch, count in self.batches():
            for metric, accumulator in zip(self.metrics, accumulators, strict=True):
                accumulator.add(metric.of_batch(None, outputs, batch, count))
            each.append({name: np.array(array) for name, array in outputs.items()})
            taken += sum(array.nbytes for array in each[-1].values())
            available_memory.require(taken, "the outputs of all examples")
            done += count
            tell(count)
        values = dict(
            zip((m.name for m in self.metrics), map(self._value, accumulators), strict=True)
        )
        return Predicted(done, {name: _joined(name, each, done) for name in each[0]}, values)

    def _value(self, accumulator: Accumulator) -> Any:
        found = accumulator.value()
        if found is None:
            raise UsageError(f"{self.source.source}: no label counts: there is nothing to measure")
        return found


@dataclass(frozen=True)
class Predicted:
    """The outputs of so many examples, and metrics: numbers, or a confusion matrix."""

    examples: int
    outputs: Arrays
    metrics: Mapping[str, Any]

    def save(self, path: str, *, force: bool) -> int:
        """Write the outputs by the suffix of a path, whole or not at all; its bytes.

        Raises:
            UsageError: another suffix, an output that no table holds, or the file exists.
        """
        require_suffix(path)
        place = atomic.target(path, force=force)
        suffix = Path(path).suffix
        if suffix == ".npz":
            npz.save(path, self.outputs)
        else:
            fill = partial(_csv if suffix == ".csv" else _parquet, path, self.outputs)
            atomic.write([atomic.Output(place, fill)])
        return place.stat().st_size


def require_suffix(path: str) -> None:
    """Refuse a file whose format is none of ours.

    Raises:
        UsageError: it ends in another suffix, or pyarrow is needed and not installed.
    """
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        raise UsageError(f"-o {path}: the name of a file of outputs ends in {', '.join(SUFFIXES)}")
    if suffix == ".parquet":
        _pyarrow(path)


def _joined(name: str, each: Sequence[Arrays], examples: int) -> np.ndarray[Any, Any]:
    """One output of all batches; one without an axis of examples is written once.

    Raises:
        UsageError: it has other sizes in other batches.
    """
    arrays = [outputs[name] for outputs in each]
    if len(arrays) == 1:
        return arrays[0]
    if not arrays[0].ndim or len({array.shape[1:] for array in arrays}) > 1:
        shapes = some(dict.fromkeys(str(list(array.shape)) for array in arrays))
        raise UsageError(
            f"output {name!r} has shape {shapes} in batches: one of all examples needs the same "
            "sizes beside the first axis; leave it out by --outputs, or pad the data"
        )
    found = np.concatenate(arrays)
    if len(found) != examples:
        raise UsageError(f"output {name!r} has {len(found)} rows for {examples} examples")
    return found


def _table(path: str, outputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs as columns of a table: `y`, or `y[i,j]` of those with more axes.

    Raises:
        UsageError: there are more columns than a table takes, or different numbers of rows.
    """
    columns: dict[str, np.ndarray[Any, Any]] = {}
    rows = {array.shape[:1] for array in outputs.values()}
    if len(rows) > 1 or () in rows:
        raise UsageError(f"-o {path}: outputs have different numbers of rows; .npz holds them")
    for name, array in outputs.items():
        if len(columns) + array[:1].size > MOST_COLUMNS:
            raise UsageError(f"-o {path}: more than {MOST_COLUMNS} columns; .npz holds them")
        wide = array if array.dtype.kind != "V" and array.dtype.name != "bfloat16" else (
            array.astype(np.float32))  # fmt: skip
        for place in np.ndindex(*array.shape[1:]):
            columns[f"{name}[{','.join(map(str, place))}]" if place else name] = wide[:, *place]
    return columns


def _csv(path: str, outputs: Arrays, file: BinaryIO) -> None:
    """Write columns in the shortest digits that read as the same number."""
    columns = _table(path, outputs)
    text = io.TextIOWrapper(file, "utf-8", newline="")
    lines = csv.writer(text)
    lines.writerow(columns)
    lines.writerows(zip(*(map(str, column) for column in columns.values()), strict=True))
    text.flush()
    text.detach()


def _parquet(path: str, outputs: Arrays, file: BinaryIO) -> None:
    pa, parquet = _pyarrow(path)
    columns = {name: np.ascontiguousarray(a) for name, a in _table(path, outputs).items()}
    parquet.write_table(pa.table(columns), file)


def _pyarrow(path: str) -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(f"-o {path}: to write it takes pyarrow: {install('data')}") from error
    return pa, parquet
