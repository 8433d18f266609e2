"""Gradients in a training graph: its results, the reads of updates, inner ones."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.graph.composites import DOMAIN
from gradtool.graph.optimizers import SPARSE_PREFIX
from gradtool.graph.reads import reads
from gradtool.graph.stages import INNER, stage
from gradtool.graph.training_info import TrainingInfo


def gradients_of(model: ir.Model) -> dict[str, str]:
    """By value, the name of its gradient: those that are results, and those that updates read."""
    return {**gradients_taken(model), **TrainingInfo.of(model).gradients}


def inner_gradients(model: ir.Model) -> dict[str, str]:
    """By result of a forward node, the name of its gradient, if the graph still has it.

    Graphs read from files do not tell.
    """
    there = {v.name for node in model.graph for v in node.outputs if v.name}
    known = model.meta.get(INNER, {}).items()
    return {name: dy for name, dy in known if name in there and dy in there}


def gradients_taken(model: ir.Model) -> dict[str, str]:
    """By parameter updated by the model, the name of its gradient."""
    outputs = {v.name: v for v in model.graph.outputs}
    found = {}
    for name, later in TrainingInfo.of(model).state.items():
        parameter, new = model.graph.initializers.get(name), outputs.get(later)
        if parameter is None or new is None:
            continue
        if not _is_read_before(parameter) or not _is_updated(new):
            continue
        gradient = _gradient(parameter, new)
        if gradient is not None:
            found[name] = gradient.name or ""
    return found


def _is_read_before(parameter: ir.Value) -> bool:
    """Whether anything but updates reads an initializer: then it is no state of an optimizer."""
    return any(stage(use.node) != "update" for use in parameter.uses())


def _is_updated(new: ir.Value) -> bool:
    """Whether an update makes a next value: forward makes those of running statistics."""
    node = new.producer()
    return node is not None and stage(node) == "update"


def _gradient(parameter: ir.Value, new: ir.Value) -> ir.Value | None:
    """The value of the parameter's shape read by its update; of several, the one called so.

    An update of some rows reads none.
    """
    waiting, seen = [new], {new}
    found: list[ir.Value] = []
    while waiting:
        value = waiting.pop()
        node = value.producer()
        if node is None:
            continue
        if node.domain == DOMAIN and node.op_type.startswith(SPARSE_PREFIX):
            return None
        if stage(node) != "update":
            if value.shape == parameter.shape and value.dtype == parameter.dtype:
                found.append(value)
            continue
        fresh = [v for v in dict.fromkeys(reads(node)) if v not in seen]
        seen.update(fresh)
        waiting += fresh
    named = [v for v in found if (v.name or "").startswith(f"{parameter.name}_grad")]
    chosen = named or found
    return chosen[0] if len(chosen) == 1 else None
