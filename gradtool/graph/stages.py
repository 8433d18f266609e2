"""Backward nodes, cotangents and updates: the metadata of a training graph."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.metadata import BARRIER, HOISTED, SOURCE, STAGE, notes
from gradtool.graph.training_info import TrainingInfo

INNER = "gradtool.inner"  # in memory: by inner forward value, its gradient
ROLES = "gradtool.roles"  # in memory: by initializer, its role in the model


def require_no_updates(model: ir.Model) -> None:
    """Refuse to count the state of an optimizer twice.

    Raises:
        UsageError: the model updates its parameters.
    """
    if TrainingInfo.of(model).optimizer is not None:
        raise UsageError(
            "the model updates its parameters, and the state of that is counted: name no optimizer"
        )


def take_state(model: ir.Model) -> None:
    """Let whatever has a next value be fed: an initializer that is an input has a default."""
    for name in TrainingInfo.of(model).state:
        value = model.graph.initializers.get(name)
        if value is not None and not value.is_graph_input():
            model.graph.inputs.append(value)


def stage(node: ir.Node) -> str:
    """`forward`, `backward`, `recompute` or `update`."""
    return notes(node).get(STAGE, "forward")


def is_backward(node: ir.Node) -> bool:
    """Whether a node runs after forward: gradients, recomputed nodes, updates."""
    return notes(node).get(STAGE, "forward") != "forward"


def is_clone(node: ir.Node) -> bool:
    """Whether a node computes a forward value again."""
    return node.metadata_props.get(STAGE) == "recompute"


def has_barriers(model: ir.Model) -> bool:
    """Whether a node of a model is part of a barrier."""
    return any(BARRIER in node.metadata_props for node in model.graph)


def is_hoisted(node: ir.Node) -> bool:
    """Whether a forward node came from backward, to save a smaller value than it reads."""
    return HOISTED in notes(node)


def seed_of(model: ir.Model) -> str | None:
    """The input for the gradient of the loss, if the model has one."""
    if TrainingInfo.of(model).loss is None:
        return None
    heads = cotangents(model) or []
    return next((v.name for v in heads if v.is_graph_input() and not v.is_initializer()), None)


def cotangents(model: ir.Model) -> list[ir.Value] | None:
    """The values from which gradients flow, None if unknown."""
    heads, graph = TrainingInfo.of(model).heads, model.graph
    if heads is None:
        return None
    values = {v.name: v for v in (*graph.inputs, *graph.initializers.values())}
    values |= {v.name: v for node in graph for v in node.outputs}
    return [values[name] for name in heads if name in values]


def clones(graph: ir.Graph) -> dict[str, list[ir.Node]]:
    """The instances of each recomputed node, by its name."""
    names = {original(n) for n in graph if stage(n) == "recompute"}
    found: dict[str, list[ir.Node]] = {}
    for node in graph if names else ():
        if original(node) in names:
            found.setdefault(original(node), []).append(node)
    return found


def original(node: ir.Node) -> str:
    """The name of a node, for a clone that of its original."""
    again = stage(node) == "recompute"
    return (node.metadata_props.get(SOURCE, "") if again else node.name) or ""
