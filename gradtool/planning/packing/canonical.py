"""Whether buffers fit a capacity: depth-first search over packings in canonical form.

In a canonical packing every buffer rests on the floor or on another one, and buffers are placed
in order of offset.  So the buffer of lowest possible offset is either placed there, or something
that is not placed yet lies under it: the search tries the first, then lifts the buffer by the
second.  It turns back where, in some section, the lowest offset of what is not placed and its
sizes exceed the capacity, and where a buffer could fall below what would be placed next.  Where
no buffer spans a boundary any more, both sides are solved alone, and the failure of one goes
straight back to the placement that separated them.

How far a search goes is counted in the buffers and sections it looks at.

Source: Moffitt, MiniMalloc, ASPLOS 2023; unlike it, a buffer that was tried at an offset is
lifted to the lowest top that can still come under it (there it is only skipped).
"""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.planning.packing.problem import Problem

FOUND, IMPOSSIBLE, STOPPED = 1, 0, -1
FAR = 1 << 62


def fit(
    problem: Problem, ranks: list[int], capacity: int, limit: int
) -> tuple[int, int, list[int]]:
    """`search` of a problem; not begun where `limit` is less than its buffers' sections."""
    if int((problem.stop - problem.start).sum()) >= limit:
        return STOPPED, limit, []
    columns = problem.start.tolist(), problem.stop.tolist(), problem.size.tolist()
    return search(*columns, ranks, len(problem.profile), capacity, limit)


def search(
    start: Sequence[int],
    stop: Sequence[int],
    size: Sequence[int],
    rank: Sequence[int],
    sections: int,
    capacity: int,
    limit: int,
) -> tuple[int, int, list[int]]:
    """The verdict, the work done, and an offset per buffer if the verdict is `FOUND`.

    Buffer `i` is live in the sections from `start[i]` up to and without `stop[i]`; `rank` says
    which goes first of those that may lie equally low.
    """
    count = len(start)
    low, offset, items = [0] * count, [0] * count, list(range(count))
    total, spans, floor = [0] * sections, [0] * sections, [0] * sections
    for i in range(count):
        count_in(start[i], stop[i], size[i], total, spans)
    if max(total) > capacity:
        return IMPOSSIBLE, 0, offset
    lifted, before = [0], [0]
    begin, end = [0] * (2 * count + 1), [count] * (2 * count + 1)
    follow, maker = [-1] * (2 * count + 1), [-1] * (2 * count + 1)
    goal_of, placed, ceiling = [0] * (count + 1), [0] * (count + 1), [0] * (count + 1)
    mark, goals_at = [0] * (count + 1), [0] * (count + 1)
    depth, goal, goals, work, opened = -1, 0, 1, 0, True
    while work < limit:
        first, last = begin[goal], end[goal]
        if opened:
            depth += 1
            goal_of[depth], goals_at[depth], mark[depth] = goal, goals, len(lifted)
            ceiling[depth] = lowest_top(items, first, last, size, low)
        spot = lowest(items, first, last, rank, low)
        item = items[spot]
        fits = low[item] < ceiling[depth]
        if fits:
            items[spot], items[first] = items[first], item
            offset[item], placed[depth] = low[item], item
            steps = put(
                item, items, first, last, start, stop, size, low, lifted, before, total, spans,
                floor, capacity,
            )  # fmt: skip
            fits = steps > 0
            work += abs(steps)
        elif maker[goal] < 0:
            return IMPOSSIBLE, work, offset
        else:
            depth = turn_back(depth, maker[goal], placed, start, stop, size, total, spans)
            goal, item = goal_of[depth], placed[depth]
            first, last = begin[goal], end[goal]
        work += last - first
        opened = fits
        if not fits:
            goals = goals_at[depth]
            steps = lift(
                item, items, first, last, start, stop, size, low, lifted, before, mark[depth],
                total, floor, capacity,
            )  # fmt: skip
            work += abs(steps)
            mark[depth] += 1
            ceiling[depth] = ceiling[depth] if steps > 0 else -1
        elif first + 1 == last:
            goal = follow[goal]
            if goal < 0:
                return FOUND, work, offset
        else:
            goals = split(
                items, first + 1, last, stop, spans, start[item], stop[item], begin, end, follow,
                maker, follow[goal], depth, goals,
            )  # fmt: skip
            goal = goals - 1
    return STOPPED, work, offset


def count_in(start: int, stop: int, size: int, total: list[int], spans: list[int]) -> None:
    """Add a buffer to what is not placed; take it away if its size is negative."""
    one = 1 if size > 0 else -1
    for s in range(start, stop):
        total[s] += size
    for s in range(start, stop - 1):
        spans[s] += one


def lowest(items: list[int], first: int, last: int, rank: Sequence[int], low: list[int]) -> int:
    """Where the buffer of least possible offset is in `items[first:last]`."""
    best = first
    for k in range(first + 1, last):
        i, j = items[k], items[best]
        if low[i] < low[j] or (low[i] == low[j] and rank[i] < rank[j]):
            best = k
    return best


def lowest_top(items: list[int], first: int, last: int, size: Sequence[int], low: list[int]) -> int:
    """Where the first of the buffers ends that can; what lies higher would let it fall."""
    top = FAR
    for k in range(first, last):
        top = min(top, low[items[k]] + size[items[k]])
    return top


def support(
    item: int,
    items: list[int],
    first: int,
    last: int,
    start: Sequence[int],
    stop: Sequence[int],
    size: Sequence[int],
    low: list[int],
) -> int:
    """The lowest top on which `item` can rest, of buffers that are not placed."""
    top = FAR
    for k in range(first, last):
        i = items[k]
        if i != item and start[i] < stop[item] and stop[i] > start[item]:
            top = min(top, low[i] + size[i])
    return top


def put(
    item: int,
    items: list[int],
    first: int,
    last: int,
    start: Sequence[int],
    stop: Sequence[int],
    size: Sequence[int],
    low: list[int],
    lifted: list[int],
    before: list[int],
    total: list[int],
    spans: list[int],
    floor: list[int],
    capacity: int,
) -> int:
    """Place `item` and lift the others above it: the work of that, minus it if they don't fit.

    If they don't, `item` counts as not placed again.
    """
    left, right, top = start[item], stop[item], low[item] + size[item]
    highest = 0
    for k in range(first + 1, last):
        i = items[k]
        if low[i] < top and start[i] < stop[item] and stop[i] > start[item]:
            lifted.append(i)
            before.append(low[i])
            low[i] = top
            left, right = min(left, start[i]), max(right, stop[i])
            highest = max(highest, top + size[i])
    count_in(start[item], stop[item], -size[item], total, spans)
    steps = -1
    if highest <= capacity:
        steps = room(items, first + 1, last, start, stop, low, total, floor, left, right, capacity)
    if steps < 0:
        count_in(start[item], stop[item], size[item], total, spans)
    return steps


def lift(
    item: int,
    items: list[int],
    first: int,
    last: int,
    start: Sequence[int],
    stop: Sequence[int],
    size: Sequence[int],
    low: list[int],
    lifted: list[int],
    before: list[int],
    mark: int,
    total: list[int],
    floor: list[int],
    capacity: int,
) -> int:
    """Take back what was lifted since `mark`, then let `item` rest on what is not placed.

    The work of that, minus it if something doesn't fit.
    """
    undo(lifted, before, mark, low)
    lifted.append(item)
    before.append(low[item])
    low[item] = support(item, items, first, last, start, stop, size, low)
    if low[item] + size[item] > capacity:
        return -1
    left, right = start[item], stop[item]
    return room(items, first, last, start, stop, low, total, floor, left, right, capacity)


def turn_back(
    depth: int,
    to: int,
    placed: list[int],
    start: Sequence[int],
    stop: Sequence[int],
    size: Sequence[int],
    total: list[int],
    spans: list[int],
) -> int:
    """Count in again what was placed from depth `to` on, which is the new depth."""
    for level in range(to, depth):
        item = placed[level]
        count_in(start[item], stop[item], size[item], total, spans)
    return to


def undo(lifted: list[int], before: list[int], mark: int, low: list[int]) -> None:
    """Take back what was lifted since there were `mark` entries."""
    while len(lifted) > mark:
        item = lifted.pop()
        low[item] = before.pop()


def room(
    items: list[int],
    first: int,
    last: int,
    start: Sequence[int],
    stop: Sequence[int],
    low: list[int],
    total: list[int],
    floor: list[int],
    left: int,
    right: int,
    capacity: int,
) -> int:
    """The work of finding that every section from `left` to `right` has room; minus it if not."""
    work = right - left
    for s in range(left, right):
        floor[s] = FAR
    for k in range(first, last):
        i = items[k]
        here, until, height = max(start[i], left), min(stop[i], right), low[i]
        for s in range(here, until):
            floor[s] = min(floor[s], height)
        work += max(until - here, 0)
    for s in range(left, right):
        if total[s] > 0 and floor[s] + total[s] > capacity:
            return -work
    return work


def split(
    items: list[int],
    first: int,
    last: int,
    stop: Sequence[int],
    spans: list[int],
    left: int,
    right: int,
    begin: list[int],
    end: list[int],
    follow: list[int],
    maker: list[int],
    after: int,
    depth: int,
    goals: int,
) -> int:
    """Make goals of `items[first:last]`, one per part that shares no section; their new number.

    Boundaries inside `left:right` are those that may have come free.  The goals follow each
    other from the last one made, and then comes `after`; `depth` made them.
    """
    here = first
    for s in range(left, right - 1):
        if spans[s] == 0:
            cut = here
            for k in range(here, last):
                i = items[k]
                if stop[i] <= s + 1:
                    items[k], items[cut] = items[cut], i
                    cut += 1
            if here < cut < last:
                begin[goals], end[goals], follow[goals] = here, cut, after
                maker[goals] = depth
                after, here, goals = goals, cut, goals + 1
    begin[goals], end[goals], follow[goals] = here, last, after
    maker[goals] = depth
    return goals + 1
