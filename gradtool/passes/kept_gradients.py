"""Gradients inside of a training step as results of it, and gradients without other readers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.stages import stage
from gradtool.graph.training_info import TrainingInfo, record


def keep_gradients(model: ir.Model, gradients: Mapping[str, str]) -> ir.Model:
    """A copy of a model that also returns these values, as the gradients of their own values.

    `gradients` maps names of values to names of their gradients.
    """
    copy, op, values = _opened(model)
    known = dict(TrainingInfo.of(copy).gradients)
    for name, inner in gradients.items():
        if name in known:
            continue
        made = _after(op, values[inner], "Identity", name)
        made.name = op.names.fresh(f"{name}_grad")
        copy.graph.outputs.append(made)
        known[name] = made.name
    record(copy, gradients=known)
    return copy


def separate_gradients(model: ir.Model, gradients: Collection[str]) -> ir.Model:
    """A copy of a model whose updates and results read copies of these gradients.

    Other readers of a gradient do not see changes to its copy.
    """
    copy, op, values = _opened(model)
    for name in gradients:
        value = values[name]
        made = _after(op, value, "Sum", name)
        for use in list(value.uses()):
            if stage(use.node) == "update":
                use.node.replace_input_with(use.idx, made)
        slots = [slot for slot, output in enumerate(copy.graph.outputs) if output is value]
        value.name, made.name = op.names.fresh(f"{name}_shared"), name
        for slot in slots:
            copy.graph.outputs[slot] = made
    return copy


def _opened(model: ir.Model) -> tuple[ir.Model, Builder, dict[str, ir.Value]]:
    copy = model.clone()
    copy.meta.update(model.meta)
    leaves = (*copy.graph.inputs, *copy.graph.initializers.values())
    results = (v for node in copy.graph for v in node.outputs)
    return copy, Builder(copy), {v.name: v for v in (*leaves, *results) if v.name}


def _after(op: Builder, value: ir.Value, operator: str, name: str) -> ir.Value:
    """A value like another one, made right behind it; of an input or initializer, at the end."""
    producer = value.producer()
    anchor = None
    if producer is not None:
        nodes = iter(op.model.graph)
        anchor = next((next(nodes, None) for node in nodes if node is producer), None)
    with op.at(anchor, stage="backward", source="", prefix=f"{name}/grad"):
        made: ir.Value = op.emit(operator, [value], None, {})
    return made
