"""Messages between the stages of a training graph, once its line of places is cut.

Forward values go up, gradients come down; values for stages further away go through those between.
A parameter that several stages read belongs to the first of them, which gives it to the others once
a step; they send its gradients back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.prune import inner_nodes
from gradtool.graph.randomness import may_draw
from gradtool.graph.reads import reads
from gradtool.graph.training_info import TrainingInfo
from gradtool.passes.forward_position import homes_of, places

SMALL = 4096  # bytes of a number known before the run, and copied to every stage that reads it


@dataclass(frozen=True)
class Cut:
    """A graph of known sizes, and the stage of each of its nodes.

    Those that are `late` run in backward turns.  `home` has the stage by parameter and state.  By
    boundary, `up` are the values that go from stage b to b + 1 in each forward turn, `down` those
    that go back in each backward turn, in order; `once` are the parameters that stage b gives to
    b + 1 before the first turn.
    """

    model: ir.Model
    stages: int
    stage: Mapping[ir.Node, int]
    late: AbstractSet[ir.Node]
    home: Mapping[str, int]
    up: Sequence[Sequence[ir.Value]]
    down: Sequence[Sequence[ir.Value]]
    once: Sequence[Sequence[ir.Value]]

    def trained(self, stage: int) -> list[str]:
        """The parameters updated by a stage, in the order of the graph."""
        names = TrainingInfo.of(self.model).gradients
        return [name for name in names if self.home.get(name) == stage]


def cut(model: ir.Model, at: Sequence[int], last: Iterable[str]) -> Cut:
    """Cut a graph before some places; values called as in `last` go to the last stage.

    Raises:
        UsageError: a value that would have to go over has no size, nodes draw by themselves, or
            state is read by several stages.
    """
    line = places(model)
    found = {node: bisect_right(at, place) for node, place in line.place.items()}
    forward = {node: stage for node, stage in found.items() if node not in line.late}
    made = Cut(
        model, len(at) + 1, found, line.late, homes_of(model, forward),
        *([[] for _ in at] for _ in range(3)),
    )  # fmt: skip
    _require(model, made)
    readers = _readers(model, made, set(last))
    for value, stages in readers.items():
        _hand_over(made, value, stages)
    for values in (made.up, made.down):
        for each in values:
            each.sort(key=partial(_ready, made, values is made.down))  # type: ignore[attr-defined]
    return made


def _ready(made: Cut, down: bool, value: ir.Value) -> tuple[int, bool]:  # noqa: FBT001 - of a list
    """The order of messages in a turn: values from afar first, then residuals of forward."""
    maker = value.producer()
    assert maker is not None  # noqa: S101 - parameters go once a step
    stage = made.stage[maker]
    return -stage if down else stage, maker in made.late


def _require(model: ir.Model, made: Cut) -> None:
    for node in made.stage:
        if may_draw(node) or any(map(may_draw, inner_nodes(node))):
            raise UsageError(
                f"--stages: {node.name!r} draws random numbers by itself, which would be others "
                "in stages"
            )
    for name in TrainingInfo.of(model).state:
        value = model.graph.initializers.get(name)
        homes = {made.stage[use.node] for use in value.uses() if use.node in made.stage} if (
            value is not None
        ) else set()  # fmt: skip
        if len(homes) > 1:
            raise UsageError(f"--stages: {name!r} is state of several stages: take fewer of them")


def _readers(model: ir.Model, made: Cut, last: set[str]) -> dict[ir.Value, set[tuple[int, bool]]]:
    """By value, its reading stages, and whether in backward; in the order of the graph."""
    found: dict[ir.Value, set[tuple[int, bool]]] = {}
    for node in model.graph:
        for value in node.outputs:
            found[value] = set()
            if value.name in last:
                found[value].add((made.stages - 1, False))
    for node in model.graph:
        if not is_known(node):
            for value in reads(node):
                found.setdefault(value, set()).add((made.stage[node], node in made.late))
    return found


def _hand_over(made: Cut, value: ir.Value, readers: set[tuple[int, bool]]) -> None:
    """Note the boundaries crossed by a value."""
    maker = value.producer()
    if maker is None:
        home = made.home.get(value.name or "")
        if home is not None:
            for boundary in range(home, max([home, *(stage for stage, _ in readers)])):
                made.once[boundary].append(value)  # type: ignore[attr-defined]
        return
    if is_known(maker):
        return
    own, late = made.stage[maker], maker in made.late
    others = [(stage, back) for stage, back in readers if stage != own]
    wrong = [
        stage for stage, back in others if (stage > own and late) or (stage < own and not back)
    ]
    if wrong:
        raise UsageError(
            f"--stages: {value.name!r} of stage {own} is needed before that by stage {wrong[0]}: "
            "take another number of stages"
        )
    if others:
        _require_size(value)
    for boundary in range(own, max([own, *(stage for stage, _ in others)])):
        made.up[boundary].append(value)  # type: ignore[attr-defined]
    for boundary in range(min([own, *(stage for stage, _ in others)]), own):
        made.down[boundary].append(value)  # type: ignore[attr-defined]


def _require_size(value: ir.Value) -> None:
    known = value.shape is not None and value.shape.is_static() and value.dtype is not None
    if not known or value.dtype == ir.DataType.STRING:
        raise UsageError(
            f"--stages: {value.name!r} would go from one stage to another, and is no tensor of "
            "known size"
        )


def is_known(node: ir.Node) -> bool:
    """Whether all results of a node are small numbers known before the run."""
    known = [value.const_value for value in node.outputs if value.uses() or value.name]
    return bool(known) and all(
        each is not None and (each.nbytes <= SMALL or not each.dtype.is_floating_point())
        for each in known
    )
