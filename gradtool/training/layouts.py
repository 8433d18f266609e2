"""A training on several ranks on paper: the memory of each, and the time of a step.

Memory is that of the arena in which a rank's session would run, planned as there.  Time is that of
its steps, and of what goes over a link beside them: a bucket of sums is on its way when its last
one is final and the bucket before has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.exec.run import sized_and_planned
from gradtool.exec.state_ready import settling_steps
from gradtool.graph.families import split_name
from gradtool.graph.randomness import TOGETHER
from gradtool.graph.training_info import TrainingInfo
from gradtool.operators.kernel_sets import Kernels
from gradtool.passes.accumulation import held_by
from gradtool.passes.update_groups import Updates
from gradtool.planning.plan import Plan
from gradtool.planning.shared_layout import NO_PARTS, Layout, extended, laid_over
from gradtool.program import Program, Step
from gradtool.ranks.group import Group
from gradtool.reports.ranks import RankLayout, Sharding
from gradtool.training.graphs import Graphs
from gradtool.training.links import Link
from gradtool.training.reduction import buckets
from gradtool.training.row_tables import tabled
from gradtool.training.sharding import Shard, sharded

Seconds = Callable[[Step], float]  # of a step of a program


@dataclass(frozen=True)
class OnPaper(Group):
    """A rank that nobody is behind."""

    rank: int
    size: int


@dataclass(frozen=True)
class PaperTraining:
    """Graphs in two halves at the sizes of one micro-batch, the link of ranks, and times."""

    graphs: Graphs
    updates: Updates
    dims: Mapping[str, int]
    link: Link
    seconds: Seconds
    micro_batches: int = 1
    kernels: Kernels = "exact"


def layout(
    paper: PaperTraining,
    group: Group,
    *,
    shard: Sharding,
    tables: Sequence[str] = (),
    staleness: int = 0,
) -> RankLayout:
    """A rank of a group that trains.

    Raises:
        UsageError: what is asked for of updates cannot be.
    """
    graphs, updates, dims, link = paper.graphs, paper.updates, paper.dims, paper.link
    micro_batches, kernels, seconds = paper.micro_batches, paper.kernels, paper.seconds
    part, apart = None, frozenset[str]()
    if tables and group.size > 1:
        graphs, found = tabled(graphs, updates, None, group, tables, staleness, dims, micro_batches)
        apart = found.apart.union(total for total, _ in found.sums.values())
    if shard != "none" and group.size > 1:
        graphs, part = sharded(graphs, updates, None, group, shard)
    assert graphs.update is not None  # noqa: S101 - ranks step in two halves
    train = sized_and_planned(graphs.model, dims, "train", kernels)[1]
    update = sized_and_planned(graphs.update, {}, "update", kernels)[1]
    arena, peak = arena_of(train, update, graphs, part)
    sums = graphs.sums
    parameters, gradients, state = _held(arena, sums, graphs.of, apart)
    exchanged = sum(_exchanged(train.program, step) for step in train.program.steps)

    def taken(step: Step) -> float:
        size = _exchanged(train.program, step)
        return seconds(step) + (link.all_gather(size, group.size) if size else 0.0)

    alone = sum(map(seconds, train.program.steps))
    once, ready = running(train.program, taken)
    updating = sum(map(seconds, update.program.steps))
    sizes = buckets_of(arena, graphs.model, apart | (sums if shard == "gradients" else frozenset()))
    arrived = before = once * (micro_batches - 1)
    for names, size in sizes:
        final = before + max(ready.get(name, once) for name in names)
        arrived = max(arrived, final) + link.all_reduce(size, group.size)
    sending = sum(link.all_reduce(size, group.size) for _, size in sizes)
    sending += (once - alone) * micro_batches
    sent = 2 * sum(size for _, size in sizes) + exchanged * micro_batches
    sent = sent * (group.size - 1) // group.size
    each = spread_of(part)
    spread = sum(link.all_gather(size, group.size) for size in each)
    spread += 2 * link.all_gather(0, group.size) if apart else 0.0  # all meet, and meet again
    sent += sum(each) * (group.size - 1) // group.size
    return RankLayout(
        shard if part is not None else "none", parameters, gradients, state,
        peak - parameters - gradients - state, peak, sent,
        alone * micro_batches + updating, sending + spread,
        max(once * micro_batches, arrived) + updating + spread,
    )  # fmt: skip


def _held(
    arena: Layout, sums: Collection[str], state: Collection[str], apart: frozenset[str]
) -> tuple[int, int, int]:
    """Bytes of parameters, of sums of gradients, and of state, but for what lies `apart`."""
    found = [
        sum(buffer.bytes for name, buffer in arena.items() if name in names)
        for names in (sums, state, apart.difference(sums))
    ]
    return sum(b.bytes for b in arena.values()) - sum(found), found[0], found[1]


def spread_of(part: Shard | None) -> list[int]:
    """The bytes of each parameter that ranks update parts of and give each other."""
    held = () if part is None else part.parameters.values()
    return [int(np.prod(whole.shape)) * whole.dtype.itemsize for whole in held]


def arena_of(train: Plan, update: Plan, graphs: Graphs, part: Shard | None) -> tuple[Layout, int]:
    """Tensors shared by both halves, and their bytes in the arena."""
    assert graphs.update is not None  # noqa: S101 - there are two
    names = frozenset(graphs.model.graph.initializers)
    parts = NO_PARTS if part is None else part.parts
    own = held_by(graphs.update).difference(parts)
    found = extended(extended({}, train, names), update, own)
    plans = laid_over(train, found, names), laid_over(update, found, own, parts)
    return found, max(plan.peak for plan in plans)


def _exchanged(program: Program, step: Step) -> int:
    """Bytes sent by each rank in a step of all ranks; 0 in others.

    Of a whole gradient a rank gets one part of all, else it gets what all of them have; of rows at
    most those of its indices, and as many gradients go.
    """
    what = split_name(step.op)[1]
    if what not in TOGETHER:
        return 0
    if what == "RanksPart":
        return program.values[next(step.reads)].bytes
    if what == "RanksRowSums":  # numbers of rows, and their gradients
        return step.workspace[0].bytes + step.workspace[2].bytes
    return step.workspace[-1].bytes


def running(program: Program, seconds: Seconds) -> tuple[float, dict[str, float]]:
    """The seconds of a program, and by state those until it is final."""
    ends = list(accumulate(map(seconds, program.steps)))
    final = settling_steps(program)
    return (ends[-1] if ends else 0.0), {
        name: ends[index] for name, index in final.items() if index is not None
    }


def buckets_of(
    arena: Layout, model: ir.Model, apart: Collection[str]
) -> list[tuple[Sequence[str], int]]:
    """The names of each bucket of what ranks sum, running statistics too, and its bytes.

    Those that are `apart` the steps of backward sum.
    """
    spans = {name: (b.offset, b.bytes) for name, b in arena.items()}
    types: dict[str, np.dtype[Any]] = {}
    for name in TrainingInfo.of(model).state:
        dtype = model.graph.initializers[name].dtype
        if dtype is not None and dtype.is_floating_point() and name not in apart:
            types[name] = np.dtype(dtype.numpy())
    return [(names, sum(spans[n][1] for n in names)) for names in buckets(spans, types)]
