"""A training in stages on paper: the memory of a rank of each, and the time of a step.

Memory is that of the arena in which the stage's session would run, planned as there.  Time is that
of its turns, one forward and one backward after the other, by the α-β model of what goes between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import onnx_ir as ir

from gradtool.exec.run import sized_and_planned
from gradtool.operators.kernel_sets import Kernels
from gradtool.passes.pipeline_cut import Cut
from gradtool.passes.residuals import Sizes
from gradtool.planning.pipeline import Drawn, Pace, in_flight, timeline
from gradtool.planning.plan import Plan
from gradtool.program import Step
from gradtool.reports.stages import Interval, Pipeline, StageLayout
from gradtool.training.graphs import Graphs
from gradtool.training.layouts import (
    OnPaper,
    PaperTraining,
    Seconds,
    arena_of,
    buckets_of,
    running,
    spread_of,
)
from gradtool.training.links import Link
from gradtool.training.sharding import Shard
from gradtool.training.stages import balanced, sized, staged


def pipeline(
    paper: PaperTraining,
    *,
    stages: int,
    replicas: int,
    shard: Literal["none", "optimizer"] = "none",
) -> Pipeline:
    """Lay a training out in stages.

    With `shard`, of an optimizer's state a rank has the part that the first of the replicas has.

    Raises:
        UsageError: the model cannot be cut into so many.
    """
    graphs, link, seconds = paper.graphs, paper.link, paper.seconds
    micro_batches, kernels = paper.micro_batches, paper.kernels
    model = sized(graphs, paper.dims)
    cut = balanced(graphs, model, stages, micro_batches, seconds)
    behind = OnPaper(0, replicas)
    each = [
        _Stage.of(
            number, staged(graphs, paper.updates, None, cut, number, micro_batches, behind, shard),
            micro_batches, kernels, _of_turns(seconds),
        )
        for number in range(stages)
    ]  # fmt: skip
    up, down, once = (
        [_taken(link, values) for values in lines] for lines in (cut.up, cut.down, cut.once)
    )
    first = [sum(once[:stage]) for stage in range(stages)]
    pace = Pace([s.forward for s in each], [s.backward for s in each], up, down, first)
    drawn = timeline(pace, micro_batches)
    end = max(turn.end_seconds for turn in drawn)
    busy = sum(turn.end_seconds - turn.start_seconds for turn in drawn)
    beside = [Interval(s, "given", 0.0, takes) for s, takes in enumerate(first)]
    beside += [interval for s in each for interval in s.closing(drawn, link, replicas)]
    return Pipeline(
        tuple(s.layout(cut, micro_batches, replicas) for s in each), replicas, micro_batches,
        shard, tuple(drawn),
        tuple(part for part in beside if part.end_seconds > part.start_seconds),
        1 - busy / (stages * end) if end else 0.0, max(part.end_seconds for part in beside),
    )  # fmt: skip


def _of_turns(seconds: Seconds) -> Seconds:
    """The same seconds in all turns: a node is called as in the model, and by its micro-batch."""

    def found(step: Step) -> float:
        name, _, number = step.name.rpartition("/")
        return seconds(replace(step, name=name) if number.isdigit() else step)

    return found


def _taken(link: Link, values: Sequence[ir.Value]) -> float:
    """Seconds until all of some values have gone over a link, one message each."""
    bytes_of = Sizes()
    return sum(link.latency + (bytes_of.bytes(value) or 0) / link.rate for value in values)


@dataclass(frozen=True)
class _Stage:
    """A stage whose plans are made."""

    number: int
    graphs: Graphs
    part: Shard | None
    train: Plan
    update: Plan
    forward: float
    backward: float
    seconds: Seconds

    @classmethod
    def of(
        cls, number: int, made: tuple[Graphs, Shard | None], micro_batches: int, kernels: Kernels,
        seconds: Seconds,
    ) -> _Stage:  # fmt: skip
        """A stage as it is planned, with the seconds of its turns."""
        own, part = made
        assert own.update is not None  # noqa: S101 - stages step in two halves
        train = sized_and_planned(own.model, {}, "train", kernels)[1]
        update = sized_and_planned(own.update, {}, "update", kernels)[1]
        forward = sum(seconds(s) for s in train.program.steps if s.stage == "forward")
        whole = sum(map(seconds, train.program.steps))
        return cls(
            number, own, part, train, update, forward / micro_batches,
            (whole - forward) / micro_batches, seconds,
        )  # fmt: skip

    def closing(self, turns: Sequence[Drawn], link: Link, replicas: int) -> list[Interval]:
        """The tensors behind the turns: its sums are those of all replicas, and it updates.

        What these have parts of, they give each other in the end.
        """
        end = max(turn.end_seconds for turn in turns if turn.stage == self.number)
        arrived = 0.0
        if replicas > 1:
            whole, ready = running(self.train.program, self.seconds)
            for names, size in self._buckets():
                final = end - whole + max(ready.get(name, whole) for name in names)
                arrived = max(arrived, final) + link.all_reduce(size, replicas)
        arrived = max(end, arrived)
        updated = arrived + sum(map(self.seconds, self.update.program.steps))
        spread = sum(link.all_gather(size, replicas) for size in spread_of(self.part))
        return [
            Interval(self.number, "sums", end, arrived),
            Interval(self.number, "update", arrived, updated),
            Interval(self.number, "parts", updated, updated + spread),
        ]

    def layout(self, cut: Cut, micro_batches: int, replicas: int) -> StageLayout:
        """The bytes of a rank of this stage."""
        arena, peak = arena_of(self.train, self.update, self.graphs, self.part)
        of = self.graphs
        gradients = sum(b.bytes for name, b in arena.items() if name in of.sums)
        state = sum(b.bytes for name, b in arena.items() if name in of.of)
        parameters = sum(b.bytes for b in arena.values()) - gradients - state
        names = [n.name or "" for n, stage in cut.stage.items()
                 if stage == self.number and n not in cut.late]  # fmt: skip
        ends = (names[0], names[-1]) if names else ("", "")
        computing = micro_batches * (self.forward + self.backward)
        computing += sum(map(self.seconds, self.update.program.steps))
        return StageLayout(
            self.number, *ends, in_flight(cut.stages, self.number, micro_batches), parameters,
            gradients, state, peak - parameters - gradients - state, peak,
            self._sent(cut, micro_batches, replicas), self.forward, self.backward, computing,
        )  # fmt: skip

    def _sent(self, cut: Cut, micro_batches: int, replicas: int) -> int:
        above, below = cut.up[self.number :][:1], cut.down[: self.number][-1:]
        once, bytes_of = cut.once[self.number :][:1], Sizes()
        turn = sum(
            bytes_of.bytes(v) or 0 for lines in (above, below) for each in lines for v in each
        )
        given = sum(bytes_of.bytes(v) or 0 for each in once for v in each)
        sums = sum(size for _, size in self._buckets()) if replicas > 1 else 0
        told = 2 * sums + sum(spread_of(self.part))
        return turn * micro_batches + given + told * (replicas - 1) // replicas

    def _buckets(self) -> list[tuple[Sequence[str], int]]:
        arena, _ = arena_of(self.train, self.update, self.graphs, self.part)
        return buckets_of(arena, self.graphs.model, frozenset())
