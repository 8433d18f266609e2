"""Micro-batches and a recompute plan for a memory, chosen together: the least predicted time.

A batch is taken in more and more parts until keeping everything fits; of fewer parts, the plan that
computes least again within the memory is looked for.  Each peak is that of the arena in which the
session will run: plans of both halves of a step, parameters, sums of gradients and the state of the
optimizer.  Times are those of `gradtool.training.nominal`: the choice is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from gradtool.errors import OverBudget, UsageError
from gradtool.exec.run import sized_and_planned
from gradtool.kernels.native import Kernels
from gradtool.planning.plan import Plan
from gradtool.planning.sharing import together
from gradtool.text.units import format_bytes
from gradtool.training.graphs import Graphs
from gradtool.training.nominal import seconds
from gradtool.workloads.budgets.limits import Budget
from gradtool.workloads.budgets.search import within
from gradtool.workloads.plans import Planned, Workload, workload, write

KEEP, SEARCHED = "keep", "optimal"
_TIGHTER = 3  # tries, as what is written may take more than was planned; the last for the least

OnCandidate = Callable[[int, int], object]


@dataclass(frozen=True)
class Candidate:
    """A way to take a step: in how many parts, of how many examples, by which plan.

    `peak` are the bytes of the arena; `time` are nominal seconds of the step, None where it does
    not fit; `work` and `planned` are what a plan file is written of.
    """

    micro_batches: int
    examples: int
    plan: str
    peak: int
    time: float | None
    graphs: Graphs
    work: Workload
    planned: Planned | None = None


@dataclass(frozen=True)
class Fit:
    """What was tried for a memory, fewest parts first, and what was chosen."""

    memory: int
    candidates: tuple[Candidate, ...]
    chosen: Candidate


def parts_of(batch: int) -> list[int]:
    """The numbers of equal parts that a batch has."""
    return [parts for parts in range(1, batch + 1) if not batch % parts]


def fitted(
    memory: int,
    batch: int,
    parts: Iterable[int],
    graphs_in: Callable[[int], Graphs],
    dims_of: Callable[[Graphs, int], Mapping[str, int]],
    kernels: Kernels,
    on_candidate: OnCandidate = lambda _parts, _examples: None,
) -> Fit:
    """What takes the least predicted time of all that fits into `memory` bytes.

    `graphs_in` has the graphs of a step in so many parts, `dims_of` the sizes of so many examples.

    Raises:
        UsageError: nothing fits; what was found to need least is named.
    """
    tried: list[Candidate] = []
    for count in parts:
        graphs, examples = graphs_in(count), batch // count
        on_candidate(count, examples)
        tried.append(_tried(memory, count, examples, graphs, dims_of(graphs, examples), kernels))
        if tried[-1].plan == KEEP and tried[-1].time is not None:
            break
    fitting = [(each.time, each) for each in tried if each.time is not None]
    if not fitting:
        least = min(tried, key=lambda each: each.peak)
        raise UsageError(
            f"--memory {format_bytes(memory)}: no step of {batch} examples fits: the least that "
            f"was found takes {format_bytes(least.peak)} ({least.peak} bytes), in "
            f"{least.micro_batches} micro-batches of {least.examples}"
        )
    return Fit(memory, tuple(tried), min(fitting, key=lambda each: each[0])[1])


def _tried(
    memory: int,
    count: int,
    examples: int,
    graphs: Graphs,
    dims: Mapping[str, int],
    kernels: Kernels,
) -> Candidate:
    """Keeping everything if that fits, else the plan within the memory of least work."""
    work, arena = workload(graphs.model, dims), _Arena(graphs, dims, kernels)
    kept, keeping = arena.of(graphs.model)
    if keeping <= memory:
        return Candidate(count, examples, KEEP, keeping, arena.time(kept, count), graphs, work)
    beside, room = keeping - work.kept.peak, memory
    for turn in range(_TIGHTER):
        is_last = turn == _TIGHTER - 1
        try:
            budget = Budget() if is_last else Budget(bytes=max(room - beside, 0))
            found = within(work, budget, name=SEARCHED)
        except OverBudget:
            is_last, found = True, within(work, Budget(), name=SEARCHED)
        model = write(work, found)
        plan, peak = arena.of(model)
        if peak <= memory or is_last:
            break
        room -= peak - memory
    time = arena.time(plan, count) if peak <= memory else None
    planned = graphs.planned(model)
    return Candidate(count, examples, SEARCHED, peak, time, planned, work, found)


class _Arena:
    """What graphs take in the arena of a session, and how long a step of theirs does."""

    def __init__(self, graphs: Graphs, dims: Mapping[str, int], kernels: Kernels) -> None:
        self._graphs, self._dims, self._kernels = graphs, dims, kernels
        update = graphs.update
        self._after: Sequence[Plan] = (
            [] if update is None else [sized_and_planned(update, {}, "update", kernels)[1]]
        )

    def of(self, model: ir.Model) -> tuple[Plan, int]:
        """The plan of a model in the order that it has, and the bytes of the arena."""
        plan = sized_and_planned(model, self._dims, "train", self._kernels)[1]
        models = replace(self._graphs, model=model).models
        names = {name for each in models for name in each.graph.initializers}
        return plan, together([plan, *self._after], names)

    def time(self, plan: Plan, count: int) -> float:
        """Nominal seconds of a step in so many parts."""
        return count * seconds(plan.program) + sum(seconds(p.program) for p in self._after)
