"""The least extra work within a budget, by trying every schedule of a small program."""

from __future__ import annotations

import heapq
from itertools import combinations


def least_extra(work, budget):
    """Least cost of repeats over all orders and repeats of the steps; None if nothing fits.

    A state is what is alive, which results are there and which steps that run once have run.  After
    a step any part of what is alive may be let go, but for results.
    """
    simulator = work.simulator
    results = [p for p in range(len(work.reads)) if is_result(work, p)]
    start = (frozenset(), frozenset(), frozenset())
    costs, heap, count = {start: 0}, [(0, 0, start)], 0
    while heap:
        cost, _, state = heapq.heappop(heap)
        alive, done, once = state
        if cost > costs[state]:
            continue
        if len(done) == len(results):
            return cost - work.total
        for place, reads in enumerate(work.reads):
            if place in once or not alive.issuperset(reads):
                continue
            written = [r for r in work.writes[place] if r not in work.live_out or place not in done]
            for after in subsets(alive, written, work.live_out):
                if bytes_during(work, place, alive, written, after) + simulator.fixed > budget:
                    continue
                state = (
                    after,
                    done | {place} if place in results else done,
                    once if work.repeatable[place] else once | {place},
                )
                if costs.get(state, cost + work.costs[place] + 1) > cost + work.costs[place]:
                    costs[state] = cost + work.costs[place]
                    count += 1
                    heapq.heappush(heap, (costs[state], count, state))
    return None


def is_result(work, place):
    writes = work.writes[place]
    return not work.live_out.isdisjoint(writes) or work.simulator.read.isdisjoint(writes)


def subsets(alive, written, live_out):
    """What may be left after a step: all results, any others."""
    passing = sorted((alive | set(written)) - live_out)
    stay = (alive | set(written)) & live_out
    for size in range(len(passing) + 1):
        for kept in combinations(passing, size):
            yield frozenset(kept) | stay


def bytes_during(work, place, alive, written, after):
    """Bytes while a step runs: what is let go before it starts does not count."""
    simulator, reads = work.simulator, work.reads[place]
    step = work.order[place]
    made = [r for r in written if r in after or r not in simulator.read]
    held = {*reads, *made, *(alive & after)}
    size = sum(work.bytes[r] for r in held) + simulator.work[step]
    takes = simulator.donates[step]
    if takes and work.writes[place][0] in made and not after.issuperset(takes):
        size -= work.bytes[work.writes[place][0]]
    return size
