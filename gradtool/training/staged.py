"""The loop of a rank that has one stage: what is trained is put together by the first one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.io.stored import Stored
from gradtool.planning.shared_layout import NO_PARTS
from gradtool.ranks.group import Group
from gradtool.ranks.line import Line
from gradtool.training.data import Arrays
from gradtool.training.evaluating import counter_for
from gradtool.training.graphs import Graphs
from gradtool.training.loop import Loop
from gradtool.training.setup import Setup, sizes_of_part
from gradtool.training.sharding import Shard
from gradtool.training.stage_session import StageSession
from gradtool.training.stages import PipelinePosition, balanced, sized, staged
from gradtool.training.timeline import Nodes

Array = np.ndarray[Any, Any]
HANDS = 0  # the slot of arrays that go to the first stage


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
