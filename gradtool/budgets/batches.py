"""The largest batch that fits into a memory, plan by plan; every candidate is planned anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gradtool.budgets.probes import work_of
from gradtool.budgets.search import CUTS, QUICK, Search, modest
from gradtool.planning.optimizer import state_bytes
from gradtool.plans import Strategy, Workload, largest_batch

_SEARCHED = {"optimal": QUICK, "min-cut": CUTS}  # effort of the plans that fit themselves to memory

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

    The search begins at the batch that fits when everything is kept, where a plan fits that one.
    `done` is called after each plan.
    """

    def keeps(size: int) -> bool:
        work = grown(size)
        return work.kept.peak <= _room(work, memory, optimizer)

    def largest(name: str, strategy: Strategy) -> int:
        def fits(size: int) -> bool:
            work = grown(size)
            return plan_fits(work, name, strategy, _room(work, memory, optimizer))

        return largest_batch(fits, start=kept if kept and fits(kept) else 1)

    kept, found = largest_batch(keeps), {}
    for name, strategy in strategies.items():
        found[name] = kept if name == "keep" else largest(name, strategy)
        done()
    return found


def plan_fits(work: Workload, name: str, strategy: Strategy, memory: int) -> bool:
    """Whether the arena of a plan fits into so many bytes.

    A plan that is searched for may compute as much again as the forward pass is.
    """
    effort = _SEARCHED.get(name)
    if effort is None:
        return strategy(work).plan.peak <= memory
    probes = Search().probes(work, name)
    found = probes.ask(memory, modest(work, effort))
    return found is not None and work_of(found) <= probes.prices.forward(work.program)


def _room(work: Workload, memory: int, optimizer: str) -> int:
    return memory - state_bytes(work.program, optimizer)
