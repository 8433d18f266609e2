"""Outputs of a training graph: gradients, their norm, next values of state."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.stages import is_backward
from gradtool.graph.training_info import record
from gradtool.ops.driver import Backward
from gradtool.workloads.grad_options import GradOptions


def publish_state(op: Builder) -> dict[str, str]:
    """Make the new running statistics outputs; by initializer, the name of its new value."""
    state: dict[str, str] = {}
    for node in op.graph:
        if node.op_type != "BatchNormalizationTraining":
            continue
        for old, new in zip(node.inputs[3:5], node.outputs[1:3], strict=True):
            if old is None or not old.is_initializer():
                continue
            new.name = new.name or op.names.fresh(f"{old.name}_next")
            if new not in op.graph.outputs:
                op.graph.outputs.append(new)
            state[old.name or ""] = new.name
    return state


def _publish_norm(op: Builder, made: Backward) -> None:
    """Make the norm of all gradients an output, in double precision where one of them is."""
    found = list(made.gradients.values())
    is_double = any(g.dtype == ir.DataType.DOUBLE for g in found)
    with op.at(None, stage="backward", source="", prefix="norm"), op.arithmetic():
        from gradtool.passes.clipping import norm_of

        norm = norm_of(op, found, ir.DataType.DOUBLE if is_double else ir.DataType.FLOAT)
    norm.name = op.names.fresh("grad_norm")
    op.graph.outputs.append(norm)


def publish(
    op: Builder, made: Backward, options: GradOptions
) -> tuple[dict[str, str], dict[ir.Value, ir.Value]]:
    """Make each gradient an output called `<value>_grad`, and return the names.

    With buffers, what an input `<value>_grad_in` holds is added to it.  Where parameters are
    updated, their gradients are no outputs: they come second.
    """
    if options.grad_norm:
        _publish_norm(op, made)
    buffers, updated = options.grad_buffers, options.optimizer != "none"
    names: dict[str, str] = {}
    trained: dict[ir.Value, ir.Value] = {}
    inputs: dict[str, str] = {}
    taken: set[ir.Value] = set(op.graph.outputs)
    for value, gradient in made.gradients.items():
        result = gradient
        if buffers:
            result = _added_to_buffer(op, value, gradient, inputs)
        elif result in taken or result.producer() is None or _is_forward(result):
            with op.at(None, stage="backward", source="", prefix=f"{value.name}/grad"):
                result = op.Identity(result)
        taken.add(result)
        result.name = op.names.fresh(f"{value.name}_grad")
        if updated and value.is_initializer():
            trained[value] = result
            continue
        op.graph.outputs.append(result)
        names[value.name or ""] = result.name
    if buffers:
        record(op.model, buffers=inputs)
    return names, trained


def _added_to_buffer(
    op: Builder, value: ir.Value, gradient: ir.Value, inputs: dict[str, str]
) -> ir.Value:
    """The sum of a gradient and a new input of its shape, whose name is noted in `inputs`."""
    name = op.names.fresh(f"{value.name}_grad_in")
    buffer = ir.Value(name=name, shape=gradient.shape, type=gradient.type)
    op.graph.inputs.append(buffer)
    inputs[value.name or ""] = name
    with op.at(None, stage="backward", source="", prefix=f"{value.name}/grad"):
        total: ir.Value = op.Add(gradient, buffer)
    return total


def _is_forward(value: ir.Value) -> bool:
    node = value.producer()
    return node is not None and not is_backward(node)
