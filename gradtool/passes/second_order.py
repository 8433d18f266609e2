"""A training graph as the forward pass of a further gradient.

What it computes, the gradients included, becomes forward; its loss and gradients stay outputs.
"""

from __future__ import annotations

import json

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph import walk
from gradtool.graph.metadata import CALL, GRADIENTS, HOISTED, LOSS, LOWER, OPTIMIZER, SOURCE, STAGE
from gradtool.graph.stages import is_hoisted
from gradtool.text.words import some


def is_training_graph(model: ir.Model) -> bool:
    """Whether gradtool wrote this model with gradients in it."""
    return GRADIENTS in model.metadata_props


def require_loss(model: ir.Model, optimizer: str = "none") -> None:
    """Refuse to guess which of its outputs is to be differentiated again.

    Raises:
        UsageError: always.
    """
    flag = "" if optimizer == "none" else f"--optimizer {optimizer}: "
    if OPTIMIZER in model.metadata_props:
        raise UsageError(f"{flag}{updates_itself(model)}; give the forward model")
    names = list(json.loads(model.metadata_props[GRADIENTS]).values())
    if flag:
        raise UsageError(f"{flag}the model holds its gradients already; give the forward model")
    example = names[0] if names else "NAME"
    raise UsageError(
        f"the model already holds gradients ({some(names)}); to differentiate one of them, "
        f"name it: --loss sum:{example}"
    )


def updates_itself(model: ir.Model) -> str:
    """What to say of a model that is a whole step of an optimizer."""
    name = json.loads(model.metadata_props[OPTIMIZER]).get("name", "an optimizer")
    return f"the model is a whole step of {name}, which updates its parameters already"


def reopen(model: ir.Model) -> list[ir.Value]:
    """Make all of a training graph forward. Returns the leaves that it was differentiated with.

    Constants of the gradient are no leaves: only gradient nodes and bodies of composites read them.
    """
    names = json.loads(model.metadata_props.pop(GRADIENTS))
    lower = json.loads(model.metadata_props.pop(LOWER, "[]"))
    lower.append({"loss": model.metadata_props.pop(LOSS, None), "gradients": names})
    model.metadata_props[LOWER] = json.dumps(lower)
    leaves = [
        value for name, value in model.graph.initializers.items()
        if name in names or any(_is_of_the_model(use.node) for use in value.uses())
    ]  # fmt: skip
    for node in walk.nodes(model.graph):
        node.metadata_props[STAGE] = "forward"
        node.metadata_props.pop(SOURCE, None)
        node.metadata_props.pop(HOISTED, None)
    return [*leaves, *(v for v in model.graph.inputs if not v.is_initializer())]


def _is_of_the_model(node: ir.Node) -> bool:
    stage = node.metadata_props.get(STAGE, "forward")
    return stage == "forward" and CALL not in node.metadata_props and not is_hoisted(node)
