"""A training graph taken apart: a step and an evaluation as pure functions, and their state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.stages import stage
from gradtool.graph.training_info import TrainingInfo
from gradtool.io import original
from gradtool.io.read import Held
from gradtool.passes.counted_dropout import count_steps
from gradtool.passes.evaluation import evaluation
from gradtool.passes.parameters_as_inputs import parameters_as_inputs
from gradtool.session.held import changing_weights

Role = Literal["parameter", "statistic", "optimizer"]


@dataclass(frozen=True)
class Tensor:
    """A tensor of the state: its role, its initial value, and its next value."""

    name: str
    next: str
    role: Role
    first: ir.TensorProtocol


@dataclass(frozen=True)
class Parts:
    """Two models without their state, and the state.

    `source` is the original file, or a model made of one by a new head.
    """

    step: ir.Model
    evaluation: ir.Model
    state: tuple[Tensor, ...]
    source: Path | Held


def parts_of(model: ir.Model) -> Parts:
    """The parts of a whole training step; the model given is left as it is.

    Raises:
        UsageError: it updates nothing, came from no file, or that lacks a trained tensor.
    """
    info = TrainingInfo.of(model)
    if info.optimizer is None:
        raise UsageError("a kit is of a whole training step: name an optimizer")
    source = original.source_of(model.meta)
    if not isinstance(source, Path | Held):
        raise UsageError("a kit is of a model in a file, into which its weights are written back")
    weights = changing_weights(model)
    original.Original(source).require(
        {name: original.kind_of(value) for name, value in weights.items()},
        info.lora, info.locations,
    )  # fmt: skip
    roles = _roles(model)
    evaluated = evaluation(model)
    parameters_as_inputs(evaluated)
    TrainingInfo(fixed=info.fixed, lower=info.lower, kernels=info.kernels).write(evaluated)
    step = model.clone()
    step.meta.update(model.meta)
    counter = count_steps(step)
    if counter is not None:
        roles[counter] = "optimizer"
    held = parameters_as_inputs(step)
    names = TrainingInfo.of(step).state
    state = tuple(Tensor(n, names[n], roles[n], held[n]) for n in names)
    return Parts(step, evaluated, state, source)


def _roles(model: ir.Model) -> dict[str, Role]:
    """The role of each tensor with a next value, by its readers: updates, forward, or both."""
    found: dict[str, Role] = {}
    for name in TrainingInfo.of(model).state:
        stages = {stage(use.node) for use in model.graph.initializers[name].uses()}
        if stages == {"update"}:
            found[name] = "optimizer"
        else:
            found[name] = "parameter" if "update" in stages else "statistic"
    return found
