"""Between two minimum cuts: which of the regions in which they differ to take from the dearer one.

Layers that are alike flip together when the price changes, so one price answers for few budgets.
The regions in which two neighbouring choices differ do not touch each other: each can be taken from
either, and which to take is a knapsack.
"""

from __future__ import annotations

from typing import NamedTuple

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.mincut import Breakpoint, Choice


class Region(NamedTuple):
    """Connected steps and storages in which two choices differ.

    `bytes` are added by keeping the region as in the larger choice, and `cost` saved.
    """

    roots: frozenset[int]
    steps: frozenset[int]
    bytes: int
    cost: int


def regions(work: CostModel, ends: Breakpoint) -> list[Region]:
    """The regions between the two choices of a breakpoint, in the order of their first step."""
    small, large = ends.small, ends.large
    steps = small.again ^ large.again
    roots = small.kept ^ large.kept
    parent: dict[int, int] = {s: s for s in sorted(steps | {work.maker[r] for r in roots})}

    def find(step: int) -> int:
        while parent[step] != step:
            parent[step] = step = parent[parent[step]]
        return step

    for step in sorted(steps):
        for root in work.reads[step]:
            if work.maker[root] in parent:
                one, other = sorted((find(step), find(work.maker[root])))
                parent[other] = one
    members: dict[int, list[int]] = {}
    for step in parent:
        members.setdefault(find(step), []).append(step)
    by_maker: dict[int, list[int]] = {}
    for root in sorted(roots):
        by_maker.setdefault(work.maker[root], []).append(root)
    return [_region(work, ends, frozenset(m), steps, by_maker) for m in members.values()]


def _region(
    work: CostModel,
    ends: Breakpoint,
    members: frozenset[int],
    steps: frozenset[int],
    by_maker: dict[int, list[int]],
) -> Region:
    roots = frozenset(r for s in members for r in by_maker.get(s, ()))
    size = sum(work.bytes[r] * (1 if r in ends.large.kept else -1) for r in roots)
    inside = members & steps
    cost = sum(work.costs[s] * (1 if s in ends.small.again else -1) for s in inside)
    return Region(roots, inside, size, cost)


def fill(work: CostModel, ends: Breakpoint, capacity: int) -> Choice:
    """The small choice with as many regions of the large one as fit the capacity.

    The latest regions come first: their gradients come first too, when nothing has been freed yet
    to run a region again in; the rest of the capacity goes to the latest that still fits.
    """
    kept, again = ends.small.kept, ends.small.again
    size, cost = ends.small.bytes, ends.small.cost
    for region in reversed(regions(work, ends)):
        if region.cost > 0 and size + region.bytes <= capacity:
            kept, again = kept ^ region.roots, again ^ region.steps
            size, cost = size + region.bytes, cost - region.cost
    return Choice(kept, again, size, cost)
