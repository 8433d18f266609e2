"""Micro-batches and a recompute plan for a memory, chosen together: the least predicted time.

A batch is taken in more and more parts until keeping everything fits; of fewer parts, the plan that
computes least again within the memory is looked for.  Each peak is that of the arena in which the
session will run: plans of both halves of a step and of evaluations, parameters, sums of gradients
and the state of the optimizer.  Times are those of
`gradtool.training.links`: the choice is the same everywhere.  So is the time that the
search may take, at most two seconds or a twentieth of the training: it is predicted as well, and
decides how deep each search goes, and how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from gradtool.errors import OverBudget, UsageError
from gradtool.exec.run import sized_and_planned
from gradtool.operators.kernel_sets import Kernels
from gradtool.passes.accumulation import held_by
from gradtool.passes.evaluation import evaluation
from gradtool.planning.pareto.budget_points import most_entries
from gradtool.planning.plan import Plan
from gradtool.planning.shared_layout import together
from gradtool.text.units import format_bytes
from gradtool.training.graphs import Graphs
from gradtool.training.links import seconds
from gradtool.workloads.budgets.limits import Budget
from gradtool.workloads.budgets.search import CUTS, Search, within
from gradtool.workloads.planned import Planned
from gradtool.workloads.plans import workload, write
from gradtool.workloads.workload import Workload

KEEP, SEARCHED = "keep", "optimal"
_TRIES = 6  # of budgets, as what is written takes more or less than was planned
_CLOSE = 0.02  # of the memory: near enough to it
LEAST, SHARE = 2.0, 0.05  # seconds of the search, or that part of the predicted training
_ENTRIES = 3e6  # that a search looks at in a second
_CUT, _WRITTEN = (
    2.5e-3,
    1.5e-3,
)  # seconds a step of the program: of a search of hardly any effort, and
# of writing and planning what was found
BATCHES = 3  # that are held beside the arena: one in use, one ready, one being read
OWN = 2 << 20  # bytes that Python and libraries allocate while steps run,
OWN_FROM = 8 * OWN  # of memories of so many bytes: smaller ones are of the arena alone

Dims = Mapping[str, int]
StepIn = Callable[[int, int], "tuple[Graphs, Dims, Sequence[Dims]]"]


class NothingFits(UsageError):
    """No step that was found fits into a memory.

    One in `parts`, of `length` tokens a text, does, where there is a length.
    """

    length: int | None = None
    parts: int = 1


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
    """The `candidates` for a `memory` in bytes, fewest parts first, and the `chosen` one.

    `left_out` are numbers of parts that no time was left to search plans of.
    """

    memory: int
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    left_out: tuple[int, ...] = ()


def parts_of(batch: int) -> list[int]:
    """The numbers of equal parts that a batch has."""
    return [parts for parts in range(1, batch + 1) if not batch % parts]


def arena_bytes(graphs: Graphs, dims: Dims, evaluated: Sequence[Dims], kernels: Kernels) -> int:
    """The bytes of the arena that steps of these sizes, and evaluations, take turns in."""
    return _Arena(graphs, dims, evaluated, kernels).of(graphs.model)[1]


def fitted(
    memory: int,
    batch_bytes: int,
    batch: int,
    parts: Iterable[int],
    step_in: StepIn,
    kernels: Kernels,
    steps: int | None = None,
) -> Fit:
    """The way of least predicted time within `memory` bytes.

    A batch takes `batch_bytes` (see `beside_arena`).  Of a step in so many parts of so many
    examples, `step_in` has the graphs, the sizes, and the sizes of its evaluations.  The search is
    bounded by the time that the `steps` are predicted to take (`LEAST`, `SHARE`).

    Raises:
        NothingFits: what was found to need least is named.
    """
    tried: list[Candidate] = []
    waiting: list[_Waiting] = []
    beside = BATCHES * batch_bytes + OWN if memory >= OWN_FROM else 0
    for count in parts:
        waiting.append(_Waiting.of(count, batch // count, kernels, step_in))
        if waiting[-1].keeping <= memory - beside:
            tried.append(waiting.pop().kept)
            break
    predicted = (tried or [waiting[0].kept])[0].time or 0.0
    left, left_out = max(LEAST, SHARE * predicted * (steps or 0)), []
    while waiting:  # the most parts have least to compute again
        share, each = left / len(waiting), waiting.pop()
        effort, tries = each.affordable(share)
        if tried and not tries:
            left_out.append(each.kept.micro_batches)
            continue
        tries = max(tries, 1)
        left -= each.seconds(effort, tries)
        tried.insert(0, _searched(max(memory - beside, 0), each, effort, tries))
    fitting = [(each.time, each) for each in tried if each.time is not None]
    if not fitting:
        least = min(tried, key=lambda each: each.peak)
        needed = least.peak + beside
        error = NothingFits(
            f"--memory {format_bytes(memory)}: no step of {batch} examples fits: the least that "
            f"was found takes {format_bytes(needed)} ({needed} bytes), in "
            f"{least.micro_batches} micro-batches of {least.examples}"
        )
        error.parts = tried[-1].micro_batches
        raise error
    chosen = min(fitting, key=lambda each: each[0])[1]
    return Fit(memory, tuple(tried), chosen, tuple(reversed(left_out)))


@dataclass(frozen=True)
class _Waiting:
    """The way of keeping everything, `kept`, in `keeping` bytes."""

    kept: Candidate
    keeping: int
    arena: _Arena

    @classmethod
    def of(cls, count: int, examples: int, kernels: Kernels, step_in: StepIn) -> _Waiting:
        graphs, dims, evaluated = step_in(count, examples)
        arena = _Arena(graphs, dims, evaluated, kernels)
        work = workload(graphs.model, dims, kernels)
        plan, keeping = arena.of(graphs.model)
        time = arena.time(plan, count)
        return cls(Candidate(count, examples, KEEP, keeping, time, graphs, work), keeping, arena)

    def affordable(self, share: float) -> tuple[float, int]:
        """The effort of a search and the budgets that it may try within so many seconds."""
        steps = len(self.kept.work.program.steps)
        left = share - _CUT * steps
        tries = min(int(left / (2 * _WRITTEN * steps)), _TRIES)
        searching = max(left - tries * _WRITTEN * steps, 0.0)
        effort = searching * _ENTRIES / most_entries(steps)
        return min(max(effort, CUTS), 1.0), max(tries, 0)

    def seconds(self, effort: float, tries: int) -> float:
        """The seconds that such a search is predicted to take, whatever it finds."""
        steps = len(self.kept.work.program.steps)
        return (_CUT + tries * _WRITTEN) * steps + effort * most_entries(steps) / _ENTRIES


def _searched(memory: int, waiting: _Waiting, effort: float, tries: int) -> Candidate:
    """The plan within the memory of least work."""
    kept, arena = waiting.kept, waiting.arena
    beside = waiting.keeping - kept.work.kept.peak
    found = _nearest(memory, kept.work, arena, beside, Search(effort), tries)
    time = arena.time(found.plan, kept.micro_batches) if found.peak <= memory else None
    return replace(
        kept, plan=SEARCHED, peak=found.peak, time=time,
        graphs=kept.graphs.planned(found.model), planned=found.planned,
    )  # fmt: skip


@dataclass(frozen=True)
class _Found:
    """A searched plan, its model, and their bytes in the arena."""

    planned: Planned
    model: ir.Model
    plan: Plan
    peak: int


def _nearest(
    memory: int, work: Workload, arena: _Arena, beside: int, search: Search, tries: int
) -> _Found:
    """The found plan of least work within the memory, or of least memory if none fits.

    Budgets are of the graph alone; what an arena takes `beside` them differs from plan to plan.  So
    the budget moves by what the arena is off, between those that are known to be too small and too
    large.
    """

    def tried(budget: Budget) -> _Found:
        planned = within(work, budget, search, name=SEARCHED)
        model = write(work, planned)
        return _Found(planned, model, *arena.of(model))

    best, room = None, memory - beside
    low, high = 0, work.kept.peak
    for _ in range(tries):
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
    """Bytes of graphs in the arena of a session, and the time of a step."""

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
