"""The loop of a rank that has one stage: what is trained is put together by the first one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.exec import feeds
from gradtool.exec.bound_model import Resident
from gradtool.exec.results import Result
from gradtool.exec.state_ready import Settling
from gradtool.io.stored import Stored
from gradtool.operators.kernel_sets import Kernels
from gradtool.ops.ranks.members import in_line, together
from gradtool.passes.cut_stages import part_name
from gradtool.passes.evaluation import evaluation
from gradtool.passes.pipeline_cut import Cut
from gradtool.planning.shared_layout import NO_PARTS, Parts
from gradtool.program.bind_dims import bound
from gradtool.ranks.group import Group
from gradtool.ranks.line import Line
from gradtool.session import Session
from gradtool.session.feeding import Batch
from gradtool.session.options import Ahead
from gradtool.training.data import Arrays
from gradtool.training.evaluating import counter_for
from gradtool.training.graphs import Graphs
from gradtool.training.loop import Loop
from gradtool.training.setup import Setup, sizes_of_part
from gradtool.training.sharding import Shard
from gradtool.training.stages import PipelinePosition, balanced, evaluated, sized, staged
from gradtool.training.timeline import Nodes

Array = np.ndarray[Any, Any]
HANDS = 0  # the slot of arrays that go to the first stage
Shapes = tuple[tuple[str, tuple[int, ...]], ...]
_MOST_SIZES = 4  # of batches to evaluate, whose stages are kept


def opened(
    setup: Setup, place: PipelinePosition, arrays: Mapping[str, Stored] | None
) -> tuple[StageSession, Graphs, Shard | None]:
    """The session of this rank's stage, its graphs, and what it updates of each parameter of these.

    `arrays` are those of a checkpoint.

    Raises:
        UsageError: the model cannot be cut into so many stages.
    """
    whole, options = setup.graphs, setup.options
    model = sized(whole, sizes_of_part(setup))
    cut = balanced(whole, model, place.line.size, options.micro_batches)
    graphs, shard = staged(
        whole, setup.updates, options.ema, cut, place.stage, options.micro_batches,
        place.replicas, options.shard,
    )  # fmt: skip
    if arrays is not None:
        graphs.put(shard.cut(arrays) if shard else arrays)
    parts = shard.parts if shard else NO_PARTS
    counter = counter_for(setup, 0)
    ahead = counter.alone if counter else None
    made = StageSession(graphs, whole, cut, place, setup.kernels, parts, ahead)
    return made, graphs, shard


@dataclass
class StagedLoop(Loop):
    """One training of a model in stages."""

    place: PipelinePosition | None = None

    @property
    def _standing(self) -> PipelinePosition:
        assert self.place is not None  # noqa: S101 - a stage stands somewhere
        return self.place

    @property
    def _everyone(self) -> Group:
        return self._standing.everyone

    def _sum(self, taken: Iterable[tuple[Arrays, int]], parts: int, scale: float) -> float:
        del parts
        assert isinstance(self.session, StageSession)  # noqa: S101 - it is opened here
        seed, step, given = self.options.seed, self.progress.step, []
        for part, number in taken:
            drawing = self.graphs.drawing(seed, step, number)
            given.append({**part, **drawing, **self.graphs.scaling(scale)})
        nodes = None if self.timeline is None else Nodes(self.timeline, self._reducer)
        losses = self.session.step_parts(given, nodes or self._reducer)
        if nodes is not None:
            nodes.done(self.session.plans[0].program)
        summed = 0.0
        for loss in losses:  # one after the other, as a process alone adds them up
            summed += loss
        return summed

    def kept(self) -> Arrays:
        """Trained tensors of all stages, on the first one of the first replica; else one's own."""
        own = super().kept()
        line = self._standing.line
        return own if self._everyone.rank >= line.size else joined(line, own)


def joined(line: Group, own: Mapping[str, Array]) -> Arrays:
    """The tensors of all ranks of a line, on the first; one array after the other goes there."""
    told = {name: (list(array.shape), array.dtype.name) for name, array in own.items()}
    names = [json.loads(each) for each in line.gather_bytes(json.dumps(told).encode())]
    found = dict(own)
    ends = Line(line)
    if line.rank:
        for array in own.values():
            ends.send(np.ascontiguousarray(array), -line.rank, HANDS)
        ends.all_sent()
        return found
    for stage, theirs in enumerate(names[1:], 1):
        for name, (shape, dtype) in theirs.items():
            came = np.empty(shape, np.dtype(dtype))
            ends.receive(came, stage, HANDS)
            found.setdefault(name, came)
    return found


class StageSession(Session):
    """The steps of one stage; `whole` has the graphs that were cut."""

    def __init__(
        self,
        graphs: Graphs,
        whole: Graphs,
        cut: Cut,
        place: PipelinePosition,
        kernels: Kernels,
        parts: Parts = NO_PARTS,
        ahead: Ahead | None = None,
    ) -> None:
        super().__init__(
            graphs.model, update=graphs.update, ahead=ahead, parts=parts, kernels=kernels
        )
        self._cut, self._place, self._loss = cut, place, whole.training.loss or ""
        self._original = whole.model
        self._line = Line(place.line)
        self._inference: dict[bool, ir.Model] = {}
        self._stages: dict[tuple[bool, Shapes], Resident] = {}

    def step_parts(self, parts: Sequence[Batch], settling: Settling | None = None) -> list[float]:
        """Take all turns of a step; the losses of its micro-batches where this is the last stage.

        Raises:
            Lost: a stage beside this one does not answer.
        """
        given = {
            part_name(name, number): array
            for number, part in enumerate(parts) for name, array in part.items()
        }  # fmt: skip
        wanted = {v.name for v in self._model.graph.inputs}
        told = _Both(settling, self._line)
        with together(self._place.replicas), in_line(self._line):
            result = self.step(
                {n: a for n, a in given.items() if n in wanted}, copy=False, settling=told
            )
        if not self._place.is_last:
            return []
        return [
            float(result.outputs[part_name(self._loss, number)].item())
            for number in range(len(parts))
        ]

    def update(self, batch: Batch | None = None, *, scale: float = 1.0) -> None:
        """Update what this stage has; a norm is that of all stages."""
        with together(self._place.line):
            super().update(batch, scale=scale)

    def evaluate(self, batch: Batch, *, copy: bool = True) -> Result:
        """Run this stage of the forward model; the last one has the results."""
        self._require_open()
        batch = self._known_ahead(batch)
        resident, loss = self._evaluating(batch)
        wanted = {v.name for v in resident.model.graph.inputs}
        given = {part_name(name, 0): array for name, array in batch.items()}
        binding = resident.feed({n: a for n, a in given.items() if n in wanted})
        with together(self._place.replicas), in_line(self._line):
            seconds = self._run(binding.enter().step)
        result = binding.outlets.take(seconds, copy=copy)
        ends = part_name("", 0)
        found = {n.removesuffix(ends): a for n, a in result.outputs.items() if n.endswith(ends)}
        named = loss and self._loss in found
        return replace(
            result, outputs=MappingProxyType(found),
            loss=float(found[self._loss].item()) if named else None,
        )  # fmt: skip

    def _evaluating(self, batch: Batch) -> tuple[Resident, bool]:
        """The evaluator of a batch of such sizes, planned at its first use; and whether a loss."""
        loss = True
        model = self._inferring(loss=True)
        if any(v.name not in batch for v in feeds.inputs_of(model)):
            loss, model = False, self._inferring(loss=False)
        shapes = tuple((name, tuple(array.shape)) for name, array in batch.items())
        key = loss, shapes
        if key not in self._stages:
            sizes = feeds.sizes(model, batch)
            sized = bound(model, sizes) if sizes else model
            while len(self._stages) >= _MOST_SIZES:
                self._stages.pop(next(iter(self._stages))).clear()
            own = evaluated(self._cut, sized, self._place.stage)
            self._stages[key] = Resident(
                own, self._store, "evaluate", self._kernels, shared=self._shared
            )
        return self._stages[key], loss

    @property
    def _whole(self) -> ir.Model:
        return self._original

    def _inferring(self, *, loss: bool) -> ir.Model:
        if loss not in self._inference:
            self._inference[loss] = evaluation(self._original, loss=loss)
        return self._inference[loss]


class _Both:
    """The listener for final sums, and for tensors handed to other stages."""

    def __init__(self, settling: Settling | None, line: Line) -> None:
        self._settling, self._line = settling, line

    def settled(self, name: str) -> None:
        if self._settling is not None:
            self._settling.settled(name)

    def between(self) -> None:
        if self._settling is not None:
            self._settling.between()
        self._line.bring_forward()
