"""The largest batch that fits into a memory, plan by plan; every candidate is planned anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gradtool.errors import ModelError
from gradtool.planning.optimizer import state_bytes
from gradtool.workloads.budgets.prices import FLOPS
from gradtool.workloads.budgets.search import CUTS, Search
from gradtool.workloads.plans import Strategy, Workload, extra_flops, largest_batch

_MOST = 1 << 30  # a model that takes as much at any batch has no largest
_SEARCHED = {"optimal": 1.0, "min-cut": CUTS}  # with their efforts

Grown = Callable[[int], Workload]


def largest_batches(
    grown: Grown,
    strategies: Mapping[str, Strategy],
    memory: int,
    *,
    optimizer: str = "none",
    done: Callable[[], object] = lambda: None,
) -> dict[str, int]:
    """By plan, the largest batch whose step fits, optimizer state included; 0 if none does.

    The search begins at the batch that fits when everything is kept, where a plan fits that one; a
    plan that is searched for begins at the largest of the plans before it that computes no more
    again than it may.  `done` is called after each plan.

    Raises:
        ModelError: the model has no step of a batch on the way.
    """

    def keeps(size: int) -> bool:
        work = _of(grown, size)
        return work.kept.peak <= _room(work, memory, optimizer)

    def is_cheap(name: str, size: int) -> bool:
        return name in _SEARCHED or _is_cheap(_of(grown, size), strategies[name])

    def known() -> int:
        by_size = sorted(found.items(), key=lambda each: -each[1])
        return next((size for name, size in by_size if size and is_cheap(name, size)), 0)

    def largest(name: str, strategy: Strategy) -> int:
        least = known() if name in _SEARCHED else 0

        def fits(size: int) -> bool:
            work = _of(grown, size)
            room = _room(work, memory, optimizer)
            return size <= least or plan_fits(work, name, strategy, room)

        start = least or (kept if kept and fits(kept) else 1)
        return largest_batch(fits, start=start, most=_MOST)

    kept = largest_batch(keeps, most=_MOST)
    found: dict[str, int] = {}
    for name, strategy in strategies.items():
        found[name] = kept if name == "keep" else largest(name, strategy)
        done()
    return found


def _of(grown: Grown, size: int) -> Workload:
    try:
        return grown(size)
    except ModelError as error:
        raise ModelError(f"the model cannot run with a batch of {size}: {error}") from error


def _is_cheap(work: Workload, strategy: Strategy) -> bool:
    """Whether a plan computes no more again than the forward pass is."""
    extra = extra_flops(strategy(work).plan, work.kept)
    return extra is not None and extra <= FLOPS.forward(work.program)


def plan_fits(work: Workload, name: str, strategy: Strategy, memory: int) -> bool:
    """Whether the arena of a plan fits into so many bytes.

    A plan that is searched for may compute as much again as the forward pass is.
    """
    if name not in _SEARCHED:
        return strategy(work).plan.peak <= memory
    answers = Search(_SEARCHED[name]).answers(work)
    allowed = answers.prices.forward(work.program)
    return memory >= answers.known.least and answers.at_most(allowed).plan.peak <= memory


def _room(work: Workload, memory: int, optimizer: str) -> int:
    return memory - state_bytes(work.program, optimizer)
