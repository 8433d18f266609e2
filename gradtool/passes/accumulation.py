"""A whole step in two graphs: one adds up gradients, the other updates by their sums.

    gradients:  forward, backward, sums ← sums + gradients     once for each micro-batch
    updates:    parameters, state ← optimizer(sums · scale)    once for each step

The sums are state of the first and read by the second, so that nothing is updated before somebody
has looked at all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.metadata import STAGE
from gradtool.graph.names import Names
from gradtool.graph.stages import ROLES, take_state
from gradtool.graph.tensors import flat
from gradtool.graph.training_info import ABSENT, TrainingInfo, add_defaults, record
from gradtool.graph.typed import as_tensor
from gradtool.io.zeros import Zeros
from gradtool.passes import sparse
from gradtool.passes.optimizer import add_updates
from gradtool.passes.update_groups import Updates
from gradtool.passes.update_order import update_early
from gradtool.shapes import infer


def accumulating(model: ir.Model) -> ir.Model:
    """A training graph with gradient buffers as state: each holds its sum.

    The model given is changed.

    Raises:
        UsageError: the shape of a gradient is open.
    """
    graph, info = model.graph, TrainingInfo.of(model)
    state = dict(info.state)
    inputs = {v.name: v for v in graph.inputs}
    for name, buffer in info.buffers.items():
        value = inputs[buffer]
        if value.shape is None or not value.shape.is_static() or value.dtype is None:
            raise UsageError(f"no sum of gradients: the shape of {name!r} is open")
        sizes = tuple(int(size) for size in value.shape.numpy())
        value.const_value = Zeros(value.dtype, sizes, buffer)
        graph.register_initializer(value)
        state[buffer] = info.gradients[name]
    made = set(info.gradients.values())
    for node in graph:
        if any(v.name in made for v in node.outputs):
            node.metadata_props[STAGE] = "update"
    record(model, state=state, buffers=ABSENT)
    update_early(model)
    return model


@dataclass(frozen=True)
class Update:
    """Updates as a model of their own, and their warnings.

    `of` has the parameter by its state.  `parts` tells which values of the model lie inside of a
    parameter or a sum: by its name, the name of that, and from which element on.
    """

    model: ir.Model
    said: tuple[str, ...]
    of: Mapping[str, str]
    parts: Mapping[str, tuple[str, int]]


def updating(
    model: ir.Model,
    asked: Updates,
    own: Mapping[str, slice | None] | None = None,
    *,
    whole: Sequence[str] | None = None,
    ranks: int = 1,
) -> Update:
    """The updates from the gradients of an `accumulating` model.

    Sums are multiplied by an input, named by the metadata `gradtool.scale`: 1 by default.  Nothing
    has a name of the model given but its parameters and sums, see `held_by`.  With `own` only these
    elements of parameters are updated, in the order of memory, or all of one where it says None;
    state is of them alone.  Of the parameters that are `whole` all of a sum is there to take the
    own part of; where that is None, sums cover the updated elements alone.  A norm of all is that
    of as many `ranks`, which have the gradients of others.

    Raises:
        UsageError: there is nothing to update.
    """
    info, held = TrainingInfo.of(model), model.graph.initializers
    sums = info.of_next
    trained = {name: sums[after] for name, after in info.gradients.items() if name in held}
    updated = trained if own is None else {n: s for n, s in trained.items() if n in own}
    chosen = {
        each: None if own is None or (whole is None and each == total) else own[name]
        for name, total in updated.items() for each in (name, total)
    }  # fmt: skip
    kept = [_held(held[name], part) for name, part in chosen.items()]
    summed = [trained[name] for name in whole or ()] if asked.clip_norm is not None else []
    names = Names.of(model)
    taken = {name: _held(held[rows], None) for name, rows in info.rows.items()}
    wholes = [_held(held[name], None, names.fresh(f"{name}_whole")) for name in summed]
    made = _of_state(model, [*kept, *taken.values(), *wholes])
    op = Builder(made, stage="update", names=names)
    op.folding.never(made.graph.initializers.values())
    scale = _scale(op, [held[name] for name in trained])
    values = {v.name or "": v for v in kept}
    totals = {values[name]: values[total] for name, total in updated.items()}
    with op.at(None, stage="backward", source="", prefix="scale"), op.arithmetic():
        gradients = _scaled(op, scale, totals)
        for x, rows in ((values[name], rows) for name, rows in taken.items()):
            gradients[x] = sparse.in_places(op, as_tensor(rows), gradients[x])
        together = _scaled(op, scale, {each: each for each in wholes})
    added = add_updates(
        op, asked, gradients, lambda value: held[value.name or ""], together,
        [name for name in trained if name not in updated], ranks,
    )  # fmt: skip
    add_defaults(made, {scale.name or "": 1.0})
    rows_of = {name: rows.name for name, rows in taken.items()} or ABSENT
    record(made, scale=scale.name, gradients=trained, state=added.next, rows=rows_of)
    for finish in (take_state, update_early, infer):
        finish(made)
    parts = {
        name: (name, 0 if part is None else part.start)
        for name, part in chosen.items()
        if own is not None and (whole is not None or name in updated)
    }  # fmt: skip
    of_wholes = {v.name or "": (name, 0) for v, name in zip(wholes, summed, strict=True)}
    return Update(made, tuple(added.said), added.of, parts | of_wholes)


def _of_state(model: ir.Model, state: Sequence[ir.Value]) -> ir.Model:
    """A model without nodes, with parameters and state of another."""
    given = model.graph
    graph = ir.Graph(
        [], [], nodes=[], initializers=state, name=f"{given.name}_update",
        opset_imports=dict(given.opset_imports),
    )  # fmt: skip
    made = ir.Model(graph, ir_version=model.ir_version)
    made.meta[ROLES] = model.meta.get(ROLES, {})
    return made


def _scaled(
    op: Builder, scale: ir.Value, totals: Mapping[ir.Value, ir.Value]
) -> dict[ir.Value, Any]:
    """Sums of gradients times a scale."""
    return {
        x: as_tensor(total) * op.cast(as_tensor(scale), _type(total)) for x, total in totals.items()
    }


def _held(value: ir.Value, part: slice | None, name: str | None = None) -> ir.Value:
    """An initializer of another model, or a part of its elements in the order of memory."""
    found = value.const_value
    if part is None:
        return ir.Value(
            name=name or value.name, shape=value.shape, type=value.type, const_value=found
        )
    size = part.stop - part.start
    if isinstance(found, Zeros):
        found = Zeros(_type(value), (size,), value.name)
    elif found is not None:
        found = ir.LazyTensor(
            partial(_part, found, part), dtype=_type(value), shape=ir.Shape((size,)),
            name=value.name,
        )  # fmt: skip
    return ir.Value(name=value.name, shape=ir.Shape((size,)), type=value.type, const_value=found)


def _part(tensor: ir.TensorProtocol, part: slice) -> ir.Tensor[np.ndarray[Any, Any]]:
    """Elements of a tensor in the order of memory; it is read when they are asked for."""
    return ir.Tensor(flat(tensor, part.start, part.stop), dtype=tensor.dtype)


def held_by(update: ir.Model) -> frozenset[str]:
    """Parameters, sums, their rows and state of `updating`'s result: they outlive a step."""
    info = TrainingInfo.of(update)
    return info.changing.union(info.gradients.values())


def _type(value: ir.Value) -> ir.DataType:
    assert value.dtype is not None  # noqa: S101 - a gradient has one
    return value.dtype


def _scale(op: Builder, values: list[ir.Value]) -> ir.Value:
    wide = any(v.dtype == ir.DataType.DOUBLE for v in values)
    dtype = ir.DataType.DOUBLE if wide else ir.DataType.FLOAT
    scale = ir.Value(
        name=op.names.fresh("gradient_scale"), shape=ir.Shape(()), type=ir.TensorType(dtype)
    )
    op.graph.inputs.append(scale)
    return scale
