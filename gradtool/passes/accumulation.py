"""A whole step in two graphs: one adds up gradients, the other updates by their sums.

    gradients:  forward, backward, sums ← sums + gradients     once for each micro-batch
    updates:    parameters, state ← optimizer(sums · scale)    once for each step

The sums are state of the first and read by the second, so that nothing is updated before somebody
has looked at all of them.
"""

from __future__ import annotations

import json

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.known import as_tensor
from gradtool.graph.metadata import BUFFERS, DEFAULTS, GRADIENTS, SCALE, STAGE, STATE
from gradtool.graph.names import Names
from gradtool.graph.stages import take_state
from gradtool.io.zeros import Zeros
from gradtool.passes.optimizer import add_updates
from gradtool.passes.update_groups import Updates
from gradtool.passes.update_order import update_early
from gradtool.shapes import infer


def accumulating(model: ir.Model) -> ir.Model:
    """A training graph with gradient buffers, in which these are state: each holds its sum.

    The model given is changed.

    Raises:
        UsageError: the shape of a gradient is open.
    """
    graph, props = model.graph, model.metadata_props
    buffers: dict[str, str] = json.loads(props.pop(BUFFERS, "{}"))
    gradients: dict[str, str] = json.loads(props[GRADIENTS])
    state: dict[str, str] = json.loads(props.get(STATE, "{}"))
    inputs = {v.name: v for v in graph.inputs}
    for name, buffer in buffers.items():
        value = inputs[buffer]
        if value.shape is None or not value.shape.is_static() or value.dtype is None:
            raise UsageError(f"no sum of gradients: the shape of {name!r} is open")
        sizes = tuple(int(size) for size in value.shape.numpy())
        value.const_value = Zeros(value.dtype, sizes, buffer)
        graph.register_initializer(value)
        state[buffer] = gradients[name]
    made = set(gradients.values())
    for node in graph:
        if any(v.name in made for v in node.outputs):
            node.metadata_props[STAGE] = "update"
    props[STATE] = json.dumps(state)
    update_early(model)
    return model


def updating(model: ir.Model, asked: Updates) -> tuple[ir.Model, tuple[str, ...]]:
    """The updates of what an `accumulating` model has the gradients of, as a model of its own.

    Returns what people should hear about it as well.  An input, named by the metadata
    `gradtool.scale`, is what sums are multiplied by: 1 where nobody gives it.  Nothing has a name
    of the model given but its parameters and sums, see `held_by`.

    Raises:
        UsageError: there is nothing to update.
    """
    given = model.graph
    names: dict[str, str] = json.loads(model.metadata_props[GRADIENTS])
    state: dict[str, str] = json.loads(model.metadata_props[STATE])
    sums = {after: before for before, after in state.items()}
    trained = {name: sums[after] for name, after in names.items() if name in given.initializers}
    kept = [
        ir.Value(name=v.name, shape=v.shape, type=v.type, const_value=v.const_value)
        for pair in trained.items() for v in map(given.initializers.__getitem__, pair)
    ]  # fmt: skip
    graph = ir.Graph(
        [], [], nodes=[], initializers=kept, name=f"{given.name}_update",
        opset_imports=dict(given.opset_imports),
    )  # fmt: skip
    made = ir.Model(graph, ir_version=model.ir_version)
    op = Builder(made, stage="update", names=Names.of(model))
    op.folding.never(kept)
    scale = _scale(op, kept)
    values = {v.name: v for v in kept}
    with op.at(None, stage="update", source="", prefix="scale"), op.arithmetic():
        gradients = {
            values[name]: as_tensor(values[total]) * op.cast(as_tensor(scale), _type(values[total]))
            for name, total in trained.items()
        }
    found, said = add_updates(
        op, asked, gradients, lambda value: given.initializers[value.name or ""]
    )
    props = made.metadata_props
    props[SCALE] = scale.name or ""
    props[DEFAULTS] = json.dumps({**json.loads(props.get(DEFAULTS, "{}")), scale.name: 1.0})
    props[GRADIENTS] = json.dumps(trained)
    props[STATE] = json.dumps(found)
    take_state(made)
    infer(made)
    return made, tuple(said)


def held_by(update: ir.Model) -> frozenset[str]:
    """The parameters, the sums and the state of what `updating` makes: they outlive a step."""
    trained: dict[str, str] = json.loads(update.metadata_props[GRADIENTS])
    state: dict[str, str] = json.loads(update.metadata_props[STATE])
    return frozenset((*trained, *trained.values(), *state))


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
