"""A training graph as the forward pass of a further gradient.

Its values, the gradients included, become forward; its loss and gradients stay outputs.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph import walk
from gradtool.graph.metadata import CALL, HOISTED, SOURCE, STAGE
from gradtool.graph.stages import is_hoisted
from gradtool.graph.training_info import ABSENT, Lower, TrainingInfo, record
from gradtool.text.words import some


def is_training_graph(model: ir.Model) -> bool:
    """Whether gradtool wrote this model with gradients in it."""
    return TrainingInfo.of(model).is_training_graph


def require_loss(model: ir.Model, optimizer: str = "none") -> None:
    """Refuse to guess which output is to be differentiated again. Raises UsageError if always."""
    flag, info = "" if optimizer == "none" else f"--optimizer {optimizer}: ", TrainingInfo.of(model)
    if info.optimizer is not None:
        raise UsageError(f"{flag}{updates_itself(model)}; give the forward model")
    names = list(info.gradients.values())
    if flag:
        raise UsageError(f"{flag}the model holds its gradients already; give the forward model")
    example = names[0] if names else "NAME"
    raise UsageError(
        f"the model already holds gradients ({some(names)}); to differentiate one of them, "
        f"name it: --loss sum:{example}"
    )


def updates_itself(model: ir.Model) -> str:
    """The message about a model that is a whole step of an optimizer."""
    optimizer = TrainingInfo.of(model).optimizer
    name = "an optimizer" if optimizer is None else optimizer.name
    return f"the model is a whole step of {name}, which updates its parameters already"


def reopen(model: ir.Model) -> list[ir.Value]:
    """Make all of a training graph forward. Returns the leaves that it was differentiated with.

    Constants of the gradient are no leaves: only gradient nodes and bodies of composites read them.
    """
    info = TrainingInfo.of(model)
    lower = (*info.lower, Lower(info.loss, info.gradients))
    record(model, loss=None, gradients=ABSENT, lower=lower)
    leaves = [
        value for name, value in model.graph.initializers.items()
        if name in info.gradients or any(_is_of_the_model(use.node) for use in value.uses())
    ]  # fmt: skip
    for node in walk.nodes(model.graph):
        node.metadata_props[STAGE] = "forward"
        node.metadata_props.pop(SOURCE, None)
        node.metadata_props.pop(HOISTED, None)
    return [*leaves, *(v for v in model.graph.inputs if not v.is_initializer())]


def _is_of_the_model(node: ir.Node) -> bool:
    stage = node.metadata_props.get(STAGE, "forward")
    return stage == "forward" and CALL not in node.metadata_props and not is_hoisted(node)
