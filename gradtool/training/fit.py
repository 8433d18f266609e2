"""Micro-batches and a recompute plan for a memory, chosen together: the least predicted time.

A batch is taken in more and more parts until keeping everything fits; of fewer parts, the plan that
computes least again within the memory is looked for.  Each peak is that of the arena in which the
session will run: plans of both halves of a step and of evaluations, parameters, sums of gradients
and the state of the optimizer.  Times are those of
`gradtool.training.reference_machine`: the choice is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.errors import OverBudget, UsageError
from gradtool.exec.run import sized_and_planned
from gradtool.operators.kernel_sets import Kernels
from gradtool.passes.accumulation import held_by
from gradtool.passes.evaluation import evaluation
from gradtool.planning.plan import Plan
from gradtool.planning.shared_layout import together
from gradtool.text.units import format_bytes
from gradtool.training.graphs import Graphs
from gradtool.training.reference_machine import seconds
from gradtool.workloads.budgets.limits import Budget
from gradtool.workloads.budgets.search import within
from gradtool.workloads.planned import Planned
from gradtool.workloads.plans import workload, write
from gradtool.workloads.workload import Workload

KEEP, SEARCHED = "keep", "optimal"
_TRIES = 6  # of budgets, as what is written takes more or less than was planned
_CLOSE = 0.02  # of the memory: near enough to it
BATCHES = 3  # that are held beside the arena: one in use, one ready, one being read
OWN = 2 << 20  # bytes that Python and libraries allocate while steps run,
OWN_FROM = 8 * OWN  # of memories of so many bytes: smaller ones are of the arena alone

Dims = Mapping[str, int]


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
    """The `candidates` for a `memory` in bytes, fewest parts first, and the `chosen` one."""

    memory: int
    candidates: tuple[Candidate, ...]
    chosen: Candidate


def parts_of(batch: int) -> list[int]:
    """The numbers of equal parts that a batch has."""
    return [parts for parts in range(1, batch + 1) if not batch % parts]


def beside_arena(memory: int, batch_bytes: int) -> int:
    """The bytes of a memory that are left for batches and for what a process allocates meanwhile.

    The interpreter, its libraries and what it holds before the first step are not counted.
    """
    return BATCHES * batch_bytes + OWN if memory >= OWN_FROM else 0


def fitted(
    memory: int,
    batch_bytes: int,
    batch: int,
    parts: Iterable[int],
    step_in: Callable[[int, int], tuple[Graphs, Dims, Sequence[Dims]]],
    kernels: Kernels,
) -> Fit:
    """What takes the least predicted time of all that fits into `memory` bytes.

    A batch takes `batch_bytes` (see `beside_arena`).  Of a step in so many parts of so many
    examples, `step_in` has the graphs, the sizes, and the sizes of its evaluations.

    Raises:
        UsageError: nothing fits; what was found to need least is named.
    """
    tried: list[Candidate] = []
    beside = beside_arena(memory, batch_bytes)
    for count in parts:
        examples = batch // count
        graphs, dims, evaluated = step_in(count, examples)
        arena = _Arena(graphs, dims, evaluated, kernels)
        tried.append(_tried(max(memory - beside, 0), count, examples, graphs, dims, arena))
        if tried[-1].plan == KEEP and tried[-1].time is not None:
            break
    fitting = [(each.time, each) for each in tried if each.time is not None]
    if not fitting:
        least = min(tried, key=lambda each: each.peak)
        needed = least.peak + beside
        raise UsageError(
            f"--memory {format_bytes(memory)}: no step of {batch} examples fits: the least that "
            f"was found takes {format_bytes(needed)} ({needed} bytes), in "
            f"{least.micro_batches} micro-batches of {least.examples}"
        )
    return Fit(memory, tuple(tried), min(fitting, key=lambda each: each[0])[1])


def _tried(
    memory: int, count: int, examples: int, graphs: Graphs, dims: Dims, arena: _Arena
) -> Candidate:
    """Keeping everything if that fits, else the plan within the memory of least work."""
    work = workload(graphs.model, dims, arena.kernels)
    kept, keeping = arena.of(graphs.model)
    if keeping <= memory:
        return Candidate(count, examples, KEEP, keeping, arena.time(kept, count), graphs, work)
    found = _nearest(memory, work, arena, keeping - work.kept.peak)
    time = arena.time(found.plan, count) if found.peak <= memory else None
    planned = graphs.planned(found.model)
    return Candidate(count, examples, SEARCHED, found.peak, time, planned, work, found.planned)


@dataclass(frozen=True)
class _Found:
    """A plan as it is searched for, the model that has it, and what that takes in the arena."""

    planned: Planned
    model: ir.Model
    plan: Plan
    peak: int


def _nearest(memory: int, work: Workload, arena: _Arena, beside: int) -> _Found:
    """The plan of least work that is found to fit, or the one that takes least if none does.

    Budgets are of the graph alone; what an arena takes `beside` them differs from plan to plan.  So
    the budget moves by what the arena is off, between those that are known to be too small and too
    large.
    """

    def tried(budget: Budget) -> _Found:
        planned = within(work, budget, name=SEARCHED)
        model = write(work, planned)
        return _Found(planned, model, *arena.of(model))

    best, room = None, memory - beside
    low, high = 0, work.kept.peak
    for _ in range(_TRIES):
        try:
            found = tried(Budget(bytes=max(room, 0)))
        except OverBudget:
            break
        if found.peak <= memory:
            best, low = found, room
        else:
            high = room
        room += memory - found.peak
        if not low < room < high:
            room = (low + high) // 2
        if high - low <= _CLOSE * memory or 0 <= memory - found.peak <= _CLOSE * memory:
            break
    return best or tried(Budget())


class _Arena:
    """What graphs take in the arena of a session, and how long a step of theirs does."""

    def __init__(
        self, graphs: Graphs, dims: Dims, evaluated: Sequence[Dims], kernels: Kernels
    ) -> None:
        self._graphs, self._dims, self.kernels = graphs, dims, kernels
        self._evaluated = evaluated
        update = graphs.update
        self._after = [] if update is None else [
            (sized_and_planned(update, {}, "update", kernels)[1], held_by(update))
        ]  # fmt: skip

    def of(self, model: ir.Model) -> tuple[Plan, int]:
        """The plan of a model in the order that it has, and the bytes of the arena."""
        plan = sized_and_planned(model, self._dims, "train", self.kernels)[1]
        names = frozenset(model.graph.initializers)
        forward = (self._graphs.forward or evaluation(model)) if self._evaluated else model
        beside = [
            (sized_and_planned(forward, dims, "evaluate", self.kernels)[1], names)
            for dims in self._evaluated
        ]
        return plan, together([(plan, names), *self._after, *beside])

    def time(self, plan: Plan, count: int) -> float:
        """Nominal seconds of a step in so many parts."""
        return count * seconds(plan.program) + sum(seconds(p.program) for p, _ in self._after)
