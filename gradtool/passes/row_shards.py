"""Tables sharded by rows: reads from all ranks, gradients to the owner of a row.

    y = table[i]             →  y = rows i of those that all ranks have
    sum ← sum + gradient     →  sums, rows ← of all ranks, of the rows that this one has

A rank has rows `bounds[r]` to `bounds[r + 1]`, behind one that is nobody's: places of the sums that
no row takes are of that.

Source: the parameter server of Hetu, of which rows are read through windows of MPI here; with
stale rows the cache of HET (Miao et al. 2022).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.metadata import SOURCE, STAGE
from gradtool.graph.prune import drop, prune
from gradtool.graph.tensors import flat
from gradtool.graph.training_info import TrainingInfo, record
from gradtool.graph.typed import as_tensor
from gradtool.io.zeros import Zeros
from gradtool.ops.composites.calls import return_instead, take_over
from gradtool.passes import sparse
from gradtool.passes.cut_sums import without
from gradtool.passes.optimizer import publish, zeros
from gradtool.passes.update_order import update_early

INT64 = ir.DataType.INT64


@dataclass(frozen=True)
class Blocks:
    """The shards of a table: rank r has rows `bounds[r]` to `bounds[r + 1]`.

    `room` is for how many rows a step has gradients on a rank.  With `stale` steps, each row has a
    place for its gradient, and as many rows of others are kept, up to so many steps.
    """

    bounds: Sequence[int]
    room: int
    stale: int = 0


def shard_rows(
    model: ir.Model, tables: Mapping[str, Blocks], rank: int
) -> tuple[ir.Model, frozenset[str]]:
    """An `accumulating` graph with a rank's rows of some tables, and further state.

    This is of no other rank, and of no checkpoint: which rows have gradients, and the kept rows of
    other ranks.  The model given is left as it is.
    """
    meta, model = model.meta, model.clone()
    model.meta.update(meta)
    op, apart = Builder(model, stage="update"), set[str]()
    state = dict(TrainingInfo.of(model).state)
    taken: dict[str, str] = {}
    for name, blocks in tables.items():
        taken[name] = _sum_rows(op, name, blocks, rank, state)
        apart.add(taken[name])
        apart |= _read_rows(op, name, blocks, state)
        _cut(model.graph.initializers[name], blocks.bounds, rank)
    record(model, state=state, rows=taken)
    prune(model)
    update_early(model)
    return model, frozenset(apart)


def why_not(model: ir.Model, name: str) -> str | None:
    """Why ranks cannot have a parameter of an `accumulating` graph by rows; None if they can."""
    x = model.graph.initializers[name]
    info = TrainingInfo.of(model)
    made_by, sums = info.gradients, info.of_next
    if not sparse.is_table(x):
        return "no Gather reads it"
    total = model.graph.initializers[sums[made_by[name]]]
    after = next(v for v in model.graph.outputs if v.name == made_by[name])
    gradient = _terms(total, after)
    reads = None if gradient is None else sparse.reads_of(gradient)
    found = [use for use in x.uses() if use.node not in (reads or ())]
    if reads is None or any(use.node.graph is not model.graph for use in found):
        return sparse.why_whole(x, after) or "its gradient is more than rows along the first axis"
    for use in found:
        axis = use.node.attributes.get_int("axis", 0)
        if use.node.op_type != "Gather" or use.idx or axis:
            return f"{use.node.op_type} reads it as well"
    return None


def _terms(total: ir.Value, after: ir.Value) -> ir.Value | None:
    """The gradient in `after`, its sum with `total`; None if it is another one."""
    uses = list(total.uses())
    if len(uses) != 1 or uses[0].node.outputs[0] is not after:
        return None
    return uses[0].node.inputs[1 - uses[0].idx]


def _sum_rows(op: Builder, name: str, blocks: Blocks, rank: int, state: dict[str, str]) -> str:
    """Let the sum of a table have places for rows; returns the state that says of which rows."""
    graph, bounds = op.root, blocks.bounds
    made_by = TrainingInfo.of(op.model).gradients
    sums = {after: before for before, after in state.items()}
    total = graph.initializers[sums[made_by[name]]]
    place = next(i for i, v in enumerate(graph.outputs) if v.name == made_by[name])
    after, x = graph.outputs[place], graph.initializers[name]
    assert x.shape is not None and total.dtype is not None  # noqa: PT018, S101 - of a known table
    gradient, adds = without(total, after)
    shape = [blocks.room + 1, *x.shape.numpy()[1:]]
    with op.at(None, stage="update", source="", prefix=f"{name}/rows"), op.arithmetic():
        rows = sparse.by_rows(op, x, gradient)
        total.shape = ir.Shape(shape)
        total.const_value = Zeros(total.dtype, tuple(shape), total.name or "")
        taken = _state(op, f"{name}_rows", INT64, shape[:1])
        op.folding.never([total])
        label, after.name = after.name, op.names.fresh(f"{name}/whole")
        ids, made = op.RanksRowSums(
            rows.rows, rows.slots, rows.sums, as_tensor(taken), as_tensor(total),
            table=name, bounds=list(bounds), rank=rank, stale=blocks.stale,
        )  # fmt: skip
    made.name = label
    graph.outputs[place] = made
    publish(op, taken, ids, state)
    drop([adds])
    return taken.name or ""


def _read_rows(op: Builder, name: str, blocks: Blocks, state: dict[str, str]) -> set[str]:
    """Let Gather read a table from all ranks; returns the state that is kept for it."""
    x, bounds, kept = op.root.initializers[name], blocks.bounds, set[str]()
    reads = [use.node for use in x.uses() if use.node.op_type == "Gather" and use.idx == 0]
    moved: dict[ir.Value, ir.Value] = {}
    most = max(bounds[r + 1] - bounds[r] for r in range(len(bounds) - 1))
    for node in reads:
        props = node.metadata_props
        how = {"table": name, "bounds": list(bounds), "stale": blocks.stale}
        stage, source = props.get(STAGE, "forward"), props.get(SOURCE, "")
        with op.at(node, stage=stage, source=source, prefix=node.name or ""):
            given = as_tensor(x), as_tensor(node.inputs[1])
            if not blocks.stale:
                made = op.RanksRows(*given, outputs=1, like=node.outputs[0], **how)
            else:
                assert x.dtype is not None and x.shape is not None  # noqa: PT018, S101 - a table
                width = list(x.shape.numpy()[1:])
                cache = [
                    _state(op, f"{name}_cache", x.dtype, [most, *width]),
                    _state(op, f"{name}_cached", INT64, [most]),
                    _state(op, f"{name}_steps", INT64, [most]),
                ]
                made, *after = op.RanksRows(*given, *map(as_tensor, cache), outputs=4, **how)
                for before, new in zip(cache, after, strict=True):
                    publish(op, before, new, state)
                    kept.add(before.name or "")
        take_over(node.outputs, (made,))
        moved[node.outputs[0]] = made
    return_instead(moved)
    drop(reads)
    return kept


def _state(op: Builder, name: str, dtype: ir.DataType, shape: Sequence[int]) -> ir.Value:
    """New state of zeros, as an input, too."""
    made = zeros(op, name, dtype, shape)
    op.root.inputs.append(made)
    return made


def _cut(x: ir.Value, bounds: Sequence[int], rank: int) -> None:
    """Leave the rows of a rank, read when they are asked for, behind one of zeros."""
    assert x.shape is not None and x.dtype is not None  # noqa: PT018, S101 - a table
    found, shape = x.const_value, list(x.shape.numpy())
    shape[0] = bounds[rank + 1] - bounds[rank] + 1
    x.shape = ir.Shape(shape)
    if found is not None:
        x.const_value = ir.LazyTensor(
            partial(_block, found, bounds[rank], bounds[rank + 1]), dtype=x.dtype, shape=x.shape,
            name=x.name,
        )  # fmt: skip


def _block(tensor: ir.TensorProtocol, start: int, end: int) -> ir.Tensor[np.ndarray[Any, Any]]:
    tail = tuple(tensor.shape.numpy())[1:]
    rows = flat(tensor, start * prod(tail), end * prod(tail))
    return ir.Tensor(block_of(rows.reshape(end - start, *tail)), dtype=tensor.dtype)


def block_of(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rows of a table, behind one of zeros."""
    made = np.zeros((len(rows) + 1, *rows.shape[1:]), rows.dtype)
    made[1:] = rows
    return made
