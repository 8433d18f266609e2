"""Lower bounds of the peak over all orders of a program, without recompute.

Proofs are in docs/bounds.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradtool.planning.flow import Integers, Mask, Network
from gradtool.planning.orders.graph import StepGraph

FREE, RUN, WAITS = 0, 1, 2


def working_set(graph: StepGraph) -> int:
    """Bound a: the bytes of the largest step by itself, and of the results at the end.

    A step that may write over an input is counted as if it did.
    """
    steps = (held - gain for held, gain in zip(graph.held, graph.gain, strict=True))
    results = int(graph.sizes[graph.staying].sum())
    return graph.fixed + max(results, max(steps, default=0))


@dataclass(frozen=True)
class OrderBound:
    """A lower bound of the peak of every order, in bytes.

    `complete` says whether every step was asked; for each step, `needs` is no less than the bytes
    alive while it runs, and as much where it was asked; `orders` hold that little.
    """

    bytes: int
    complete: bool
    needs: Integers
    orders: tuple[Integers, ...]


def order_bound(graph: StepGraph, orders: Sequence[Integers], *, cuts: int) -> OrderBound:
    """Bound b: over the steps, the most that must be alive while one runs, by minimum cuts.

    Bytes that one of `orders` holds while a step runs are no less than the least: steps are asked
    in decreasing order of the least of these, until none is left that could need more than the
    bound found, or `cuts` steps were asked.
    """
    best = working_set(graph)
    needs = np.full(graph.count, np.iinfo(np.int64).max)
    for order in orders:
        learn(graph, needs, order)
    found: list[Integers] = []
    while int(needs.max(initial=0)) > best and len(found) < cuts:
        step = int(needs.argmax())
        needs[step], run = least_during(graph, step)
        best = max(best, int(needs[step]))
        found.append(first(orders[0], run, step))
        learn(graph, needs, found[-1])
    complete = int(needs.max(initial=0)) <= best
    return OrderBound(best, complete, needs, tuple(found))


def learn(graph: StepGraph, needs: Integers, order: Integers) -> None:
    """Lower the known needs of steps to the bytes an order holds while they run."""
    needs[order] = np.minimum(needs[order], graph.profile(order))


def first(order: Integers, run: Mask, step: int) -> Integers:
    """`order` with some steps moved to the start, and `step` behind them."""
    return np.concatenate([order[run[order]], [step], order[~run[order] & (order != step)]])


def least_during(graph: StepGraph, step: int) -> tuple[int, Mask]:
    """The fewest bytes alive while a step runs, and the steps run before it then."""
    sides = sides_of(graph, step)
    alone = graph.fixed + graph.held[step]
    cut, run = least_around(graph, sides, step)
    found = (alone + cut, run)
    for storage in graph.donates[step]:
        forced = sides.copy()
        forced[graph.closure(graph.readers[storage], backward=True)] = RUN
        if ((forced == RUN) & (sides == WAITS)).any():
            continue
        least = least_around(graph, forced, step) if (forced != sides).any() else (cut, run)
        if alone - graph.gain[step] + least[0] < found[0]:
            found = (alone - graph.gain[step] + least[0], least[1])
    return found


def least_around(graph: StepGraph, sides: Integers, step: int) -> tuple[int, Mask]:
    """The fewest bytes alive beside a step's own, and the steps run before it then."""
    touched = np.zeros(len(graph.sizes), dtype=bool)
    touched[[*graph.reads[step], *graph.writes[step]]] = True
    cut, run = _cut(graph, sides, touched)
    run[step] = False
    return cut, run


def least_live(graph: StepGraph, low: Mask, high: Mask) -> tuple[int, Mask]:
    """The fewest bytes alive once all of `low` and some of `high` have run; the steps run then."""
    sides = np.where(low, RUN, np.where(high, FREE, WAITS))
    bytes_, run = _cut(graph, sides, np.zeros(len(graph.sizes), dtype=bool))
    return graph.fixed + bytes_, run


def sides_of(graph: StepGraph, step: int) -> Integers:
    """Of each step, whether it has run when `step` runs, waits for it, or may do either."""
    sides = np.full(graph.count, FREE)
    sides[graph.reach(step, backward=False)] = WAITS
    sides[graph.reach(step, backward=True)] = RUN
    return sides


def _cut(graph: StepGraph, sides: Integers, touched: Mask) -> tuple[int, Mask]:
    """The fewest bytes alive but for touched storages, over possible sets of run steps; such a set.

    Node 0 is all steps that have run, node 1 all that wait; then the free steps, then storages with
    several of these as readers.
    """
    storage, reader = graph.pairs
    state, read_by = sides[graph.makers], sides[reader]
    storages, is_free, run = len(graph.sizes), sides == FREE, sides == RUN
    late = graph.staying.copy()
    late[storage[read_by == WAITS]] = True
    counted = ~touched & (state != WAITS)
    total = int(graph.sizes[counted & late & (state == RUN)].sum())
    count = int(np.count_nonzero(is_free))
    if not count:
        return total, run
    node = np.where(is_free, 1 + np.cumsum(is_free), sides == WAITS)
    free = np.flatnonzero(read_by == FREE)
    stored, readers = storage[free], node[reader[free]]
    many = np.bincount(stored, minlength=storages)
    kill = np.flatnonzero(counted & late & (state == FREE))
    open_ = counted & ~late & (many > 0)
    is_shared = open_ & (many > 1)
    target = np.zeros(storages, dtype=np.int64)
    target[stored] = readers
    shared = int(np.count_nonzero(is_shared))
    target[is_shared] = 2 + count + np.arange(shared)
    single = np.flatnonzero(open_)
    fans = is_shared[stored]
    earlier, later = graph.edges
    inner = np.flatnonzero(is_free[earlier] & is_free[later])
    makers = node[graph.makers]
    tails = np.concatenate([makers[kill], makers[single], target[stored[fans]], node[later[inner]]])
    heads = np.concatenate(
        [np.ones_like(kill), target[single], readers[fans], node[earlier[inner]]]
    )
    sizes = np.full(len(tails), -1)
    sizes[: len(kill)] = graph.sizes[kill]
    sizes[len(kill) : len(kill) + len(single)] = graph.sizes[single]
    cut = Network(2 + count + shared, tails, heads).cut(sizes, 0, 1)
    return total + cut.value, run | (is_free & cut.source_side[node])
