"""Each rank updates a part of the parameters, and holds the optimizer's state of that alone.

    sums of gradients on every rank  →  each updates its part  →  parameters on every rank

With most optimizers what becomes of an element depends on no other one: every parameter is cut
into as many pieces as there are ranks.  With the others a parameter has one owner.

Source: ZeRO, stage 1 (Rajbhandari et al. 2020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph.training_info import TrainingInfo, record
from gradtool.io.stored import Stored
from gradtool.passes.accumulation import updating
from gradtool.passes.averages import add_averages
from gradtool.passes.cut_sums import cut_sums
from gradtool.passes.update_groups import Updates
from gradtool.passes.update_kinds import kind_of
from gradtool.planning.shared_layout import Parts
from gradtool.ranks.group import Group, share
from gradtool.session import Session
from gradtool.training.graphs import Graphs

UNIT = 64  # elements that stay together: whole lines of a cache
Array = np.ndarray[Any, Any]
Pieces = Sequence[slice]  # of the elements of something in the order of memory, by rank


@dataclass(frozen=True)
class Whole:
    """Something that ranks have pieces of, as it is together."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Pieces

    @property
    def counts(self) -> list[int]:
        """How many elements each rank has."""
        return [piece.stop - piece.start for piece in self.pieces]


def _part(array: Array | Stored, part: slice) -> Array:
    """Elements in the order of memory."""
    if isinstance(array, Stored):
        return array.flat(part.start, part.stop)
    return array.reshape(-1)[part]


@dataclass(frozen=True)
class Shard:
    """This rank's share of the updates, and its place in the arena.

    `own` has the elements of parameters, all of one where it says None: its pieces, or where it has
    none something that another has as well, which nobody takes from it.  `of` has the parameter by
    its state.
    """

    parameters: Mapping[str, Whole]
    state: Mapping[str, Whole]
    own: Mapping[str, slice | None]
    of: Mapping[str, str]
    parts: Parts

    def cut(self, arrays: Mapping[str, Array | Stored]) -> dict[str, Array | Stored]:
        """Arrays as they are together, cut to what this rank has: state is."""
        found = {name: array for name, array in arrays.items() if name not in self.state}
        for name, of in self.of.items():
            if of in self.own:
                part = self.own[of]
                found[name] = arrays[name] if part is None else _part(arrays[name], part)
        return found

    def joined(self, group: Group, values: Mapping[str, Array]) -> dict[str, Array]:
        """Values with the state that all ranks have together."""
        found = {name: array for name, array in values.items() if name not in self.state}
        for name, whole in self.state.items():
            mine, held = whole.pieces[group.rank], values.get(name)
            sends = held is not None and mine.stop > mine.start
            came = group.gather_bytes(np.ascontiguousarray(held).tobytes() if sends else b"")
            made = np.empty(prod(whole.shape), whole.dtype)
            for piece, data in zip(whole.pieces, came, strict=True):
                made[piece] = np.frombuffer(data, whole.dtype)
            found[name] = made.reshape(whole.shape)
        return found

    def spread(self, group: Group, session: Session) -> None:
        """Send every rank what this one has updated.

        Raises:
            Lost: some rank has not come to the same place in time.
        """
        values = session.values(*self.parameters, copy=False)
        pending = []
        for name, whole in self.parameters.items():
            wide = whole.dtype.itemsize
            counts = [(piece.stop - piece.start) * wide for piece in whole.pieces]
            starts = [piece.start * wide for piece in whole.pieces]
            flat = values[name].reshape(-1).view(np.uint8)
            pending.append(group.spread(flat, counts, starts))
        for each in pending:
            group.wait(each)


def sharded(
    graphs: Graphs, updates: Updates, ema: float | None, group: Group, what: str, stages: int = 1
) -> tuple[Graphs, Shard]:
    """The graphs of a step in two halves, the second with the updates of a rank.

    With `gradients` of `what` a rank has, the first sums those alone.  Graphs of one of several
    `stages` are cut further, among those that have the same.

    Raises:
        UsageError: what is asked for of updates cannot be.
    """
    assert graphs.update is not None  # noqa: S101 - several ranks step in two halves
    held, told = graphs.update.graph.initializers, TrainingInfo.of(graphs.update)
    tables = told.rows  # of which ranks have rows
    trained = {name: held[name] for name in graphs.trained if name not in tables}
    optimizer = kind_of(updates.optimizer, updates.optimizer_option)[0]
    summed, wholes = what == "gradients", {name: _whole(value) for name, value in trained.items()}
    if optimizer.elements:
        parameters = _by_elements(wholes, group.size, in_order=summed)
    else:
        parameters = _by_owner(wholes, group.size)
    mine = {name: whole.pieces[group.rank] for name, whole in parameters.items()}
    mine = {name: piece for name, piece in mine.items() if piece.stop > piece.start}
    if not mine:
        mine = dict.fromkeys(list(parameters)[:1], slice(0, 0 if summed else 1))
    own = {name: piece if optimizer.elements else None for name, piece in mine.items()}
    own |= dict.fromkeys(tables)
    model, given = graphs.model, graphs.training.model
    if summed:
        model = given = cut_sums(
            model, {name: whole.counts for name, whole in parameters.items()}, group.rank,
            whole=not optimizer.elements, ordered=group.ordered,
        )  # fmt: skip
    made = updating(
        given, updates, own, whole=None if summed else graphs.trained,
        ranks=stages * (group.size if summed else 1),
    )  # fmt: skip
    if ema is not None:
        add_averages(made.model, list(own), ema, given)
    record(made.model, averages=told.averages, gradients=told.gradients, optimizer=told.optimizer)
    state = {
        name: _state(_whole(held[name]), parameters[of], by_elements=optimizer.elements)
        for name, of in graphs.of.items() if of in trained
    }  # fmt: skip
    initializers = given.graph.initializers
    parts = {
        name: (of, start * _whole(initializers[of]).dtype.itemsize)
        for name, (of, start) in made.parts.items()
    }
    of = {name: of for name, of in graphs.of.items() if of in trained}
    shard = Shard(parameters, state, own, of, parts)
    return replace(graphs, model=model, update=made.model), shard


def _by_elements(wholes: Mapping[str, Whole], ranks: int, *, in_order: bool) -> dict[str, Whole]:
    """Each cut into pieces of whole units; who has the first one of it goes around.

    Where pieces have to be in the order of ranks, who has all of a short one does.
    """
    found = {}
    for number, (name, whole) in enumerate(wholes.items()):
        size, first = prod(whole.shape), 0 if in_order else number
        units = [share(-(-size // UNIT), rank, ranks) for rank in range(ranks)]
        cut = [slice(u.start * UNIT, min(u.stop * UNIT, size)) for u in units]
        pieces = [cut[(rank + first) % ranks] for rank in range(ranks)]
        if in_order and size < UNIT * ranks:
            pieces = _all_to(number % ranks, size, ranks)
        found[name] = replace(whole, pieces=pieces)
    return found


def _by_owner(wholes: Mapping[str, Whole], ranks: int) -> dict[str, Whole]:
    """Each to one rank: the largest first, to who has least."""
    sizes = {name: prod(whole.shape) for name, whole in wholes.items()}
    load, owner = [0] * ranks, {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        owner[name] = load.index(min(load))
        load[owner[name]] += sizes[name]
    return {
        name: replace(whole, pieces=_all_to(owner[name], sizes[name], ranks))
        for name, whole in wholes.items()
    }


def _state(state: Whole, parameter: Whole, *, by_elements: bool) -> Whole:
    """State cut as the parameter that it is of."""
    if by_elements:
        return replace(state, pieces=parameter.pieces)
    owner = next((r for r, p in enumerate(parameter.pieces) if p.stop > p.start), 0)
    return replace(state, pieces=_all_to(owner, prod(state.shape), len(parameter.pieces)))


def _all_to(owner: int, size: int, ranks: int) -> list[slice]:
    return [slice(0, size if rank == owner else 0) for rank in range(ranks)]


def _whole(value: ir.Value) -> Whole:
    assert value.shape is not None and value.dtype is not None  # noqa: PT018, S101 - updates have them
    return Whole(tuple(value.shape.numpy()), np.dtype(value.dtype.numpy()), ())
