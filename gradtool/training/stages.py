"""Ranks of a pipeline, and the graphs of a rank's stage.

    rank = replica · stages + stage

Replicas take shares of a batch, as ranks without stages do; the ranks of a replica are its stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.reads import reads
from gradtool.graph.training_info import TrainingInfo
from gradtool.passes.accumulation import updating
from gradtool.passes.averages import add_averages
from gradtool.passes.cut_stages import stage_graph
from gradtool.passes.forward_position import homes_of, places
from gradtool.passes.pipeline_cut import Cut, cut, is_known
from gradtool.passes.residuals import Sizes, residuals
from gradtool.passes.update_groups import Updates
from gradtool.planning.pipeline import Line, cuts, turns
from gradtool.program import Step
from gradtool.program.bind_dims import bound
from gradtool.program.flatten import flatten
from gradtool.ranks.group import ALONE, Group
from gradtool.training.graphs import Graphs
from gradtool.training.links import step_seconds
from gradtool.training.sharding import Shard, sharded

Seconds = Callable[[Step], float]  # of a step of a program


@dataclass(frozen=True)
class PipelinePosition:
    """The position of this rank: among all, among those of its stage, and within its line."""

    everyone: Group
    replicas: Group
    line: Group

    @property
    def stage(self) -> int:
        """The stage that this rank has."""
        return self.line.rank

    @property
    def is_last(self) -> bool:
        """Whether results and the loss come here."""
        return self.line.rank == self.line.size - 1


def standing(group: Group, stages: int) -> PipelinePosition:
    """The position of a rank among replicas of all stages."""
    replica, stage = divmod(group.rank, stages)
    line = group.part(range(replica * stages, (replica + 1) * stages))
    return PipelinePosition(group, group.part(range(stage, group.size, stages)), line)


def require_ranks(ranks: int, stages: int, shard: str, *, sync_batchnorm: bool) -> None:
    """Refuse numbers of ranks unfit for the stages, and options of replicas without any.

    Raises:
        UsageError: naming the option.
    """
    if ranks % stages:
        raise UsageError(
            f"--stages {stages} takes {stages} ranks or a multiple of them, not {ranks}"
        )
    if stages > 1 and stages == ranks:
        if sync_batchnorm:
            raise UsageError("--sync-batchnorm: every stage is on one rank, which has all examples")
        if shard != "none":
            raise UsageError("--shard: every stage is on one rank, which has all of its state")


def sized(graphs: Graphs, dims: Mapping[str, int]) -> ir.Model:
    """The graph of a step whose sizes are those of a micro-batch."""
    model = bound(graphs.model, dims) if dims else graphs.model
    model.meta.update(graphs.model.meta)
    return model


def balanced(
    graphs: Graphs, model: ir.Model, stages: int, micro_batches: int,
    seconds: Seconds = step_seconds,
) -> Cut:  # fmt: skip
    """A graph of known sizes, cut where its stages are balanced.

    Raises:
        UsageError: it cannot be cut into so many.
    """
    line = line_of(graphs, model, seconds)
    return cut(model, cuts(line, stages, micro_batches), [graphs.training.loss or ""])


def line_of(graphs: Graphs, model: ir.Model, seconds: Seconds) -> Line:
    """Bytes of each place of a graph; times are those of its steps on numpy's kernels."""
    line = places(model)
    where, forward = line.place, line.forward
    count, homes, bytes_of = len(forward), homes_of(model, forward), Sizes()
    names = {node.name: place for node, place in where.items()}
    taken, trained = np.zeros(count), np.zeros(count, bool)
    held, saved = (np.zeros(count, np.int64) for _ in range(2))
    for step in flatten(model).steps:
        taken[names.get(step.name, 0)] += seconds(step)
    for name, size in _held(graphs, model).items():
        if name in homes:
            held[homes[name]] += size
            trained[homes[name]] = True
    for value in residuals(model).values:
        maker = value.producer()
        if maker is not None:
            saved[where[maker]] += bytes_of.bytes(value) or 0
    crossing = _crossing(where, homes, count)
    return Line(taken.tolist(), held.tolist(), saved.tolist(), crossing, trained.tolist())


def _held(graphs: Graphs, model: ir.Model) -> dict[str, int]:
    """The bytes of each parameter that is trained, of its sum and of its state."""
    assert graphs.update is not None  # noqa: S101 - stages step in two halves
    bytes_of = Sizes()
    found = {
        name: 2 * (bytes_of.bytes(model.graph.initializers[name]) or 0)
        for name in TrainingInfo.of(model).gradients
    }
    for state, of in graphs.of.items():
        found[of] += bytes_of.bytes(graphs.update.graph.initializers[state]) or 0
    return found


def _crossing(where: Mapping[ir.Node, int], homes: Mapping[str, int], count: int) -> list[int]:
    """The bytes that go over a cut before each place."""
    ends: dict[ir.Value, tuple[int, int]] = {}
    for node, place in where.items():
        for value in () if is_known(node) else reads(node):
            maker = value.producer()
            home = homes.get(value.name or "") if maker is None else where.get(maker)
            if home is not None and (maker is None or not is_known(maker)):
                low, high = ends.get(value, (home, home))
                ends[value] = min(low, place), max(high, place)
    found, bytes_of = np.zeros(count + 1, np.int64), Sizes()
    for value, (low, high) in ends.items():
        size = bytes_of.bytes(value) or 0
        found[low + 1] += size
        found[high + 1 if high < count else count] -= size
    return [int(size) for size in np.cumsum(found)[:count]]


def staged(
    graphs: Graphs,
    updates: Updates,
    ema: float | None,
    made: Cut,
    stage: int,
    micro_batches: int,
    replicas: Group = ALONE,
    shard: str = "none",
) -> tuple[Graphs, Shard | None]:
    """The graphs of one stage in two halves: its turns of a step, and the updates of its own.

    With `shard` the `replicas` update parts of these, and hold the state of these parts alone.

    Raises:
        UsageError: what is asked for of updates cannot be.
    """
    # Sums have all rows of a table: who asked for some has heard of it.
    updates = replace(updates, sparse=False)
    own = _of_stage(graphs, updates, ema, made, stage, micro_batches)
    if shard == "none":
        return own, None
    return sharded(own, updates, ema, replicas, shard, made.stages)


def _of_stage(
    graphs: Graphs, updates: Updates, ema: float | None, made: Cut, stage: int, micro_batches: int
) -> Graphs:
    assert graphs.update is not None  # noqa: S101 - stages step in two halves
    loss = graphs.training.loss or ""
    model = stage_graph(made, stage, turns(made.stages, stage, micro_batches), [loss])
    own = made.trained(stage)
    given = graphs.training.model
    update = updating(given, updates, dict.fromkeys(own), ranks=made.stages).model
    if ema is not None:
        add_averages(update, own, ema, given)
    told, mine = TrainingInfo.of(graphs.update), TrainingInfo.of(update)
    sums = {name: mine.gradients[name] for name in own}
    replace(mine, gradients=sums, averages=told.averages, optimizer=told.optimizer).write(update)
    return replace(graphs, model=model, update=update)


def evaluated(made: Cut, model: ir.Model, stage: int) -> ir.Model:
    """One stage of a cut evaluation graph: its nodes are where those of that are.

    Raises:
        UsageError: some parameter would be read by another stage than that which trains it.
    """
    stages = {node.name: at for node, at in made.stage.items() if node not in made.late}
    found, latest = list[int](), 0
    for node in model.graph:
        latest = max(latest, _known(stages, node.name or "", latest))
        found.append(latest)
    at = [sum(each <= boundary for each in found) for boundary in range(made.stages - 1)]
    results = [v.name or "" for v in model.graph.outputs]
    again = cut(model, at, results)
    for name, home in again.home.items():
        if made.home.get(name, home) != home:
            raise UsageError(
                f"--stages: {name!r} is trained by stage {made.home[name]} and evaluated by stage "
                f"{home}: take another number of stages"
            )
    return stage_graph(again, stage, [("forward", 0)], results)


def _known(stages: Mapping[str | None, int], name: str, latest: int) -> int:
    """The stage of a node of a name, or of what stood there before."""
    while name not in stages and "/" in name:
        name = name.rpartition("/")[0]
    return stages.get(name, latest)
