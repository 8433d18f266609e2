"""Tables of which each rank has a block of rows, with the optimizer's state of these.

    rows of the indices ← those who have them    forward
    gradients of rows   → those who have them    backward
    all have met                                 then who has them updates, and all meet again

Source: the parameter server of Hetu; with stale rows the cache of HET (Miao et al. 2022).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import GradtoolError, UsageError
from gradtool.graph.stages import stage
from gradtool.graph.training_info import TrainingInfo
from gradtool.io.stored import Stored
from gradtool.passes.accumulation import updating
from gradtool.passes.averages import add_averages
from gradtool.passes.optimizer import why_all_move
from gradtool.passes.row_shards import Blocks, block_of, shard_rows, why_not
from gradtool.passes.update_groups import Updates
from gradtool.program.bind_dims import bound
from gradtool.ranks.group import Group, Window, anywhere, share
from gradtool.session import Session
from gradtool.text.words import some
from gradtool.training.graphs import Graphs

PIECE = 4 << 20  # bytes of other ranks' rows that are held at once
ADDED = ("float32", "float64")  # what MPI adds up by itself
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class RowTables:
    """Tables in blocks over ranks, and tensors of one rank alone.

    `bounds` has by parameter or state of a table which rows each rank has, `sums` by table the
    names of its sums and of what says of which rows they are; `apart` is in no checkpoint.
    """

    bounds: Mapping[str, Sequence[int]]
    sums: Mapping[str, tuple[str, str]]
    apart: frozenset[str]
    stale: int

    @property
    def names(self) -> frozenset[str]:
        """All that is not the same on every rank."""
        return frozenset((*self.bounds, *self.apart))

    def cut(self, arrays: Mapping[str, Stored], rank: int) -> dict[str, Array | Stored]:
        """Arrays of a checkpoint, cut to what a rank has."""
        found: dict[str, Array | Stored] = dict(arrays)
        for name, bounds in self.bounds.items():
            found[name] = block_of(arrays[name].rows(bounds[rank], bounds[rank + 1]))
        return found


def tabled(
    graphs: Graphs, updates: Updates, ema: float | None, group: Group, globs: Sequence[str],
    stale: int, dims: Mapping[str, int] | None, micro_batches: int,
) -> tuple[Graphs, RowTables]:  # fmt: skip
    """The graphs of a step in two halves, with this rank's blocks of the tables.

    `dims` are the sizes of all micro-batches, None where they differ.  Tables that cannot be cut
    are whole on every rank: `said` tells why.

    Raises:
        UsageError: no table matches, or none can be cut; or updates are not by rows.
    """
    chosen, said = _chosen(graphs, updates, globs, stale)
    counts = None if dims is None else _indices(graphs.model, chosen, dims)
    held = graphs.model.graph.initializers
    tables = {}
    for name in chosen:
        height = _shape(held[name])[0]
        bounds = [share(height, rank, group.size).start for rank in range(group.size)] + [height]
        own = bounds[group.rank + 1] - bounds[group.rank]
        most = own if counts is None else counts[name] * micro_batches * group.size
        tables[name] = Blocks(bounds, own if stale else min(own, most), stale)
    model, apart = shard_rows(graphs.model, tables, group.rank)
    made = updating(model, updates)
    of = dict(made.of)
    if ema is not None:
        of |= add_averages(made.model, list(graphs.trained), ema, model)
    bounds_of = {name: blocks.bounds for name, blocks in tables.items()}
    bounds_of |= {name: tables[of[name]].bounds for name in of if of[name] in tables}
    rows = TrainingInfo.of(made.model).rows
    sums = graphs.sums_of
    found = replace(
        graphs, training=replace(graphs.training, model=model), model=model, update=made.model,
        said=(*made.said, *said), of=of,
    )  # fmt: skip
    named = {name: (sums[name], rows[name]) for name in tables}
    return found, RowTables(bounds_of, named, apart, stale)


def _chosen(
    graphs: Graphs, updates: Updates, globs: Sequence[str], stale: int
) -> tuple[list[str], list[str]]:
    """The tables that match and can be cut; and why others cannot, for people."""
    if not updates.sparse:
        raise UsageError("--shard-tables takes --sparse: ranks send each other rows")
    names, model = graphs.trained, graphs.model
    values = [model.graph.initializers[name] for name in names]
    found, said = [], []
    for glob in globs:
        if not _matches(names, glob):
            known = some(names, 5)
            raise UsageError(f"--shard-tables {glob}: no such parameter (there are {known})")
    matching = {name for glob in globs for name in _matches(names, glob)}
    for name, value in zip(names, values, strict=True):
        if name not in matching:
            continue
        why = why_all_move(updates, values, value) or why_not(model, name)
        if why is None and stale and np.dtype(value.dtype.numpy()).name not in ADDED:  # type: ignore[union-attr]
            why = f"--staleness adds up {' and '.join(ADDED)} alone"
        if why is None:
            found.append(name)
        else:
            said.append(f"--shard-tables: {name} is whole on every rank: {why}")
    if not found:
        raise UsageError(said[0])
    return found, said


def _matches(names: Sequence[str], glob: str) -> list[str]:
    return [name for name in names if name == glob or fnmatchcase(name, glob)]


def _indices(model: ir.Model, names: Sequence[str], dims: Mapping[str, int]) -> dict[str, int]:
    """How many rows forward reads of each table at once."""
    graph = (bound(model, dims) if dims else model).graph
    return {
        name: sum(
            prod(_shape(use.node.inputs[1])) for use in graph.initializers[name].uses()
            if use.node.op_type == "Gather" and stage(use.node) == "forward"
        )
        for name in names
    }  # fmt: skip


def _shape(value: ir.Value | None) -> tuple[int, ...]:
    assert value is not None and value.shape is not None  # noqa: PT018, S101 - sizes are known here
    return tuple(int(size) for size in value.shape.numpy())


class RowServer:
    """The rows of this rank among all, for tables in blocks."""

    def __init__(
        self, tables: RowTables, group: Group, session: Session, folder: Path | None
    ) -> None:
        """Open; all ranks do it together.  Whole tables go to files in a folder for a while."""
        self.tables, self._group, self._session, self._folder = tables, group, session, folder
        self._added = {
            f"{name}/{what}": held
            for name, both in tables.sums.items() if tables.stale
            for what, held in zip(("sums", "taken"), both, strict=True)
        }  # fmt: skip
        self._windows: dict[str, Window] = {}
        self._expose()

    def meet(self) -> None:
        """All have read their rows and sent their gradients, before anybody updates.

        Raises:
            GradtoolError: sums have moved, to which others have added.
        """
        for name in self._added:
            self._windows[name].flush()
        if anywhere(self._group, any(self._has_moved(name) for name in self._added)):
            raise GradtoolError(
                "batches are not of one size: --staleness takes steps that fit where the first did"
            )
        for name in self._added:
            self._windows[name].collect()

    def settle(self) -> None:
        """All have updated; who reads from now on reads that."""
        for window in self._windows.values():
            window.publish()
        if anywhere(self._group, any(map(self._has_moved, self._windows))):
            self._expose()

    def close(self) -> None:
        """End it, all ranks together."""
        self._group.gather(np.array(0))
        for window in self._windows.values():
            window.close()
        self._windows = {}
        self._group.windows = {}

    def whole(self) -> dict[str, Array]:
        """Tables and their state as they are together, in files that are gone with them.

        What others have of them is held a piece at a time.
        """
        return {name: self._whole(name, bounds) for name, bounds in self.tables.bounds.items()}

    def _whole(self, name: str, bounds: Sequence[int]) -> Array:
        window = self._windows[name]
        own = self._value(name)
        made = mapped(self._folder, own.dtype, (bounds[-1], *own.shape[1:]))
        step = max(PIECE // max(own[:1].nbytes, 1), 1)
        for rank in range(self._group.size):
            if rank == self._group.rank:
                made[bounds[rank] : bounds[rank + 1]] = own[1:]
                continue
            for start in range(bounds[rank], bounds[rank + 1], step):
                rows = np.arange(start, min(start + step, bounds[rank + 1])) - bounds[rank] + 1
                piece = np.empty((len(rows), *own.shape[1:]), own.dtype)
                self._group.wait(window.read(rank, rows, piece))
                made[start : start + len(rows)] = piece
        return made

    def _expose(self) -> None:
        """Open windows on where everything lies now."""
        for window in self._windows.values():
            window.close()
        held = {**{name: name for name in self.tables.bounds}, **self._added}
        self._windows = {name: self._group.expose(self._value(of)) for name, of in held.items()}
        self._group.windows = self._windows
        for window in self._windows.values():
            window.publish()
        self._group.gather(np.array(0))

    def _has_moved(self, name: str) -> bool:
        now = self._value(self._added.get(name, name))
        return bool(now.ctypes.data != self._windows[name].own.ctypes.data)

    def _value(self, name: str) -> Array:
        return self._session.values(name, copy=False)[name]


def mapped(folder: Path | None, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """An array in a temporary file, on a disk with room for all of it.

    Who writes to a mapping of a file that has holes is killed when the disk is full.

    Raises:
        UsageError: there is no room, or the folder cannot be written.
    """
    size = prod(shape) * dtype.itemsize
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            if size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype, "w+", shape=shape)
    except OSError as error:
        raise UsageError(
            f"{folder or tempfile.gettempdir()}: no place for a table of {size} bytes: "
            f"{error.strerror or error}"
        ) from error
