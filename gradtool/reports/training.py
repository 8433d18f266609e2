"""The report of `gradtool grad` on a training graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from gradtool.graph.training_info import TrainingInfo
from gradtool.text.json_schema import Count
from gradtool.text.units import format_bytes
from gradtool.text.words import some

if TYPE_CHECKING:
    from gradtool.ops.driver import Offender
    from gradtool.text.table import Table
    from gradtool.workloads.training import TrainingGraph

MOST = 24  # names in a line

Files = Sequence[tuple[str, int]]  # paths and bytes


class NodesRecord(TypedDict):
    """Nodes by stage."""

    forward: Count
    loss: Count
    backward: Count
    update: Count


class Halves(TypedDict):
    """The fields of a split graph."""

    backward: NotRequired[Annotated[str, "With --split: the other file."]]
    saved: NotRequired[
        Annotated[list[str], "With --split: the residuals that forward returns for backward."]
    ]


class GradDocument(Halves):
    """A written training graph."""

    model: Annotated[str, "The forward model."]
    output: Annotated[str, "The file written, with --split that of forward."]
    bytes: Annotated[Count, "Of all files written, weights beside them included."]
    opset: Count
    loss: Annotated[str | None, "The output that is the loss."]
    loss_description: str
    labels: Annotated[list[str], "Inputs that hold labels."]
    gradients: Annotated[dict[str, str], "By the name of a value, the output that is its gradient."]
    updates: Annotated[
        dict[str, str],
        "With --optimizer: by the name of a parameter, the output that is its new value.",
    ]
    adapters: Annotated[dict[str, tuple[str, str]], "By weight the two tensors beside it (--lora)."]
    zero_gradients: Annotated[list[str], "Values whose gradient is zero by definition."]
    parameters: Annotated[Count, "How many could be differentiated by."]
    nodes: NodesRecord
    rules: Annotated[list[str], "Operators whose gradient rules were used."]
    warnings: list[str]


def training_lines(
    training: TrainingGraph, source: str, files: Files, saved: Sequence[str] = ()
) -> list[str]:
    """The lines for people: the model, the loss, the number of nodes, the written file."""
    graph = training.model.graph
    nodes = (
        f"{training.forward_nodes} forward + {training.loss_nodes} loss + "
        f"{training.backward_nodes} backward"
        + (f" + {training.update_nodes} update" if training.update_nodes else "")
    )
    return [
        f"{PurePath(source).name}  opset {graph.opset_imports.get('', 0)}{_symbols(training)}",
        f"loss: {training.loss_said}   parameters: {parameters_said(training)}",
        f"nodes: {nodes}      rules used: {len(training.rules)}, missing: none",
        *_adapter_lines(training),
        *_update_lines(training),
        *([f"saved for backward: {len(saved)} values"] if saved else []),
        *(f"wrote {path} ({format_bytes(size)})" for path, size in files),
    ]


def parameters_said(training: TrainingGraph) -> str:
    """The number of values with a gradient, and the gradients zero by definition."""
    count = len(training.gradients) + len(training.updates)
    zeros = training.zeros
    named = f", {len(zeros)} zero by definition ({some(zeros, MOST)})" if zeros else ""
    return f"{count} of {training.candidates}{named}"


def _update_lines(training: TrainingGraph) -> list[str]:
    """The optimizer, the number of its parameters, and its learning rate."""
    info = TrainingInfo.of(training.model)
    told = info.optimizer
    if not training.updates or told is None:
        return []
    numbers = [f"{name} {info.defaults[name]:g}" for name in told.inputs.values()]
    others = [
        f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}".lower() for k, v in told.fixed.items()
    ]
    rest = f"; {', '.join(others)}" if others else ""
    which = f"optimizer: {told.name}, inputs {', '.join(numbers)}{rest}"
    rows = f", by rows: {some(told.rows, MOST)}" if told.rows else ""
    return [f"{which}   updates: {len(training.updates)} parameters{rows}"]


def _adapter_lines(training: TrainingGraph) -> list[str]:
    """The frozen weights with an adapter beside them."""
    adapters = TrainingInfo.of(training.model).lora
    if not adapters:
        return []
    listed = some((each.weight for each in adapters), MOST)
    return [f"adapters, scaled by {adapters[0].scale:g}, beside {len(adapters)} weights: {listed}"]


def _symbols(training: TrainingGraph) -> str:
    from gradtool.io import symbols

    open_sizes = symbols(training.model)
    return f"  {some(open_sizes)} (symbolic)" if open_sizes else ""


def training_json(
    training: TrainingGraph, source: str, files: Files, saved: Sequence[str] = ()
) -> GradDocument:
    """The same for machines; sizes in bytes."""
    adapters = TrainingInfo.of(training.model).lora
    halves: Halves = {}
    if len(files) > 1:
        halves = {"backward": files[-1][0], "saved": list(saved)}
    return {
        "model": source,
        "output": files[0][0],
        "bytes": sum(size for _, size in files),
        **halves,
        "opset": training.model.graph.opset_imports.get("", 0),
        "loss": training.loss,
        "loss_description": training.loss_said,
        "labels": list(training.labels),
        "gradients": dict(training.gradients),
        "updates": dict(training.updates),
        "adapters": {each.weight: each.names for each in adapters},
        "zero_gradients": list(training.zeros),
        "parameters": training.candidates,
        "nodes": {
            "forward": training.forward_nodes,
            "loss": training.loss_nodes,
            "backward": training.backward_nodes,
            "update": training.update_nodes,
        },
        "rules": list(training.rules),
        "warnings": list(training.warnings),
    }


def offenders_table(rows: Sequence[Offender]) -> Table:
    """The operators without a gradient, all at once, with a remedy each."""
    from gradtool.text.layout import Column
    from gradtool.text.table import Table

    return Table(
        columns=(
            Column("op", kind="name"),
            *Column.numbers("nodes"),
            Column("first node", kind="name"),
            Column("what to do"),
        ),
        rows=tuple((r.op, str(r.nodes), r.first_node, r.what_to_do) for r in rows),
    )
