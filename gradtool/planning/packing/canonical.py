"""Whether buffers fit a capacity: depth-first search over packings in canonical form.

In a canonical packing every buffer rests on the floor or on another one, and buffers are placed in
order of offset.  So the buffer of lowest possible offset is either placed there, or an unplaced one
lies under it: the search tries the first, then lifts the buffer by the second.  It turns back if,
in some section, the lowest offset of the unplaced buffers and their sizes exceed the capacity, and
if a buffer could fall below the next placement.  Where no buffer spans a boundary any more, both
sides are solved alone, and the failure of one goes straight back to the placement that separated
them.

The length of a search is counted in the buffers and sections it looks at.

Source: Moffitt, MiniMalloc, ASPLOS 2023; unlike it, a buffer that was tried at an offset is
lifted to the lowest top that can still come under it (there it is only skipped).
"""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.planning.packing.problem import Problem

FOUND, IMPOSSIBLE, STOPPED = 1, 0, -1
FAR = 1 << 62
Verdict = tuple[int, int, list[int]]


def fit(problem: Problem, ranks: list[int], capacity: int, limit: int) -> Verdict:
    """`search` of a problem; not begun where `limit` is less than its buffers' sections."""
    if int((problem.stop - problem.start).sum()) >= limit:
        return STOPPED, limit, []
    columns = problem.start.tolist(), problem.stop.tolist(), problem.size.tolist()
    return search(*columns, ranks, len(problem.profile), capacity, limit)


def search(
    start: Sequence[int], stop: Sequence[int], size: Sequence[int], rank: Sequence[int],
    sections: int, capacity: int, limit: int,
) -> Verdict:  # fmt: skip
    """The verdict, the work done, and an offset per buffer if the verdict is `FOUND`.

    Buffer `i` is live in the sections from `start[i]` up to and without `stop[i]`; `rank` says
    which goes first of those that may lie equally low.
    """
    left = _Left(start, stop, size, sections, capacity)
    if max(left.total) > capacity:
        return IMPOSSIBLE, 0, left.offset
    return _Search(left, rank).run(limit)


class _Left:
    """The unplaced buffers: the lowest offset of each, and their total by section.

    `items[first:last]` are those of a goal.  `total` is the size of those of a section, `spans` how
    many of them go on into the next.
    """

    def __init__(
        self, start: Sequence[int], stop: Sequence[int], size: Sequence[int], sections: int,
        capacity: int,
    ) -> None:  # fmt: skip
        self.start, self.stop, self.size, self.capacity = start, stop, size, capacity
        self.items = list(range(len(start)))
        self.low, self.offset = [0] * len(start), [0] * len(start)
        self.total, self.spans, self._floor = ([0] * sections for _ in range(3))
        self._lifted: list[tuple[int, int]] = []
        for item in self.items:
            self.count_in(item)

    @property
    def lifted(self) -> int:
        """The number of lifted buffers."""
        return len(self._lifted)

    def count_in(self, item: int, sign: int = 1) -> None:
        """Add a buffer to the unplaced ones; take it away if the sign is negative."""
        total, spans, size = self.total, self.spans, sign * self.size[item]
        start, stop, one = self.start[item], self.stop[item], sign if self.size[item] > 0 else -1
        for s in range(start, stop):
            total[s] += size
        for s in range(start, stop - 1):
            spans[s] += one

    def lowest(self, first: int, last: int, rank: Sequence[int]) -> int:
        """The place, among the items of a goal, of the buffer of least possible offset."""
        items, low, best = self.items, self.low, first
        for k in range(first + 1, last):
            i, j = items[k], items[best]
            if low[i] < low[j] or (low[i] == low[j] and rank[i] < rank[j]):
                best = k
        return best

    def lowest_top(self, first: int, last: int) -> int:
        """The lowest possible top of the buffers; one placed higher would let this one fall."""
        low, size = self.low, self.size
        return min((low[i] + size[i] for i in self.items[first:last]), default=FAR)

    def place(self, item: int, first: int, last: int) -> int:
        """Place `item` and lift the others above it: the work of that, minus it if they don't fit.

        If they don't, `item` counts as not placed again.
        """
        start, stop, size, low = self.start, self.stop, self.size, self.low
        begin, end, top, highest = start[item], stop[item], low[item] + size[item], 0
        left, right = begin, end
        for i in self.items[first + 1 : last]:
            if low[i] < top and start[i] < end and stop[i] > begin:
                self._lifted.append((i, low[i]))
                low[i] = top
                left, right = min(left, start[i]), max(right, stop[i])
                highest = max(highest, top + size[i])
        self.count_in(item, -1)
        steps = -1
        if highest <= self.capacity:
            steps = self._room(first + 1, last, left, right)
        if steps < 0:
            self.count_in(item)
        return steps

    def lift(self, item: int, first: int, last: int, mark: int) -> int:
        """Undo lifts since `mark`, then let `item` rest on unplaced buffers.

        Returns the work spent, negative if a buffer doesn't fit.
        """
        while len(self._lifted) > mark:
            other, before = self._lifted.pop()
            self.low[other] = before
        self._lifted.append((item, self.low[item]))
        self.low[item] = self._support(item, first, last)
        if self.low[item] + self.size[item] > self.capacity:
            return -1
        return self._room(first, last, self.start[item], self.stop[item])

    def _support(self, item: int, first: int, last: int) -> int:
        """The lowest top of an unplaced buffer on which `item` can rest."""
        start, stop, begin, end = self.start, self.stop, self.start[item], self.stop[item]
        return min(
            (
                self.low[i] + self.size[i]
                for i in self.items[first:last]
                if i != item and start[i] < end and stop[i] > begin
            ),
            default=FAR,
        )

    def _room(self, first: int, last: int, left: int, right: int) -> int:
        """The work of finding room in sections from `left` to `right`; minus it if one has none."""
        floor, total, work = self._floor, self.total, right - left
        floor[left:right] = [FAR] * (right - left)
        for i in self.items[first:last]:
            here, until, height = max(self.start[i], left), min(self.stop[i], right), self.low[i]
            for s in range(here, until):
                floor[s] = min(floor[s], height)
            work += max(until - here, 0)
        fits = all(
            total[s] <= 0 or floor[s] + total[s] <= self.capacity for s in range(left, right)
        )
        return work if fits else -work


class _Search:
    """Goals, one for each part without a section in common with others, and the placements so far.

    A goal is solved when its items are placed; then comes the one that follows it.  By depth: the
    goal, the placed item, its possible offset, and the count of lifts before it.
    """

    def __init__(self, left: _Left, rank: Sequence[int]) -> None:
        count = len(left.items)
        self.left, self._rank = left, rank
        self._begin, self._end = [0] * (2 * count + 1), [count] * (2 * count + 1)
        self._follow, self._maker = [-1] * (2 * count + 1), [-1] * (2 * count + 1)
        self._goal_of, self._placed, self._ceiling, self._mark, self._goals_at = (
            [0] * (count + 1) for _ in range(5)
        )
        self._depth, self._goals = -1, 1

    def run(self, limit: int) -> Verdict:
        """The verdict of `search`."""
        left, goal, work, opened = self.left, 0, 0, True
        while work < limit:
            first, last = self._begin[goal], self._end[goal]
            if opened:
                self._open(goal, first, last)
            item, steps = self._next(first, last)
            if steps == 0:
                if self._maker[goal] < 0:
                    return IMPOSSIBLE, work, left.offset
                self._turn_back(self._maker[goal])
                goal, item = self._goal_of[self._depth], self._placed[self._depth]
                first, last = self._begin[goal], self._end[goal]
            work += abs(steps) + last - first
            opened = steps > 0
            if not opened:
                work += self._lift(item, first, last)
            elif first + 1 == last:
                goal = self._follow[goal]
                if goal < 0:
                    return FOUND, work, left.offset
            else:
                goal = self._split(item, first + 1, last, self._follow[goal])
        return STOPPED, work, left.offset

    def _open(self, goal: int, first: int, last: int) -> None:
        """Go one placement deeper."""
        self._depth += 1
        depth = self._depth
        self._goal_of[depth], self._goals_at[depth] = goal, self._goals
        self._mark[depth] = self.left.lifted
        self._ceiling[depth] = self.left.lowest_top(first, last)

    def _next(self, first: int, last: int) -> tuple[int, int]:
        """The lowest item, and the work of placing it: minus it without room, 0 if it falls."""
        left = self.left
        spot = left.lowest(first, last, self._rank)
        item = left.items[spot]
        if left.low[item] >= self._ceiling[self._depth]:
            return item, 0
        left.items[spot], left.items[first] = left.items[first], item
        left.offset[item], self._placed[self._depth] = left.low[item], item
        return item, left.place(item, first, last)

    def _lift(self, item: int, first: int, last: int) -> int:
        """Lift an item where it does not fit; the work spent."""
        depth = self._depth
        self._goals = self._goals_at[depth]
        steps = self.left.lift(item, first, last, self._mark[depth])
        self._mark[depth] += 1
        self._ceiling[depth] = self._ceiling[depth] if steps > 0 else -1
        return abs(steps)

    def _turn_back(self, to: int) -> None:
        """Count in again the placements from a depth on, which is the new depth."""
        for level in range(to, self._depth):
            self.left.count_in(self._placed[level])
        self._depth = to

    def _split(self, placed: int, first: int, last: int, after: int) -> int:
        """Make goals of items, one per part without a section in common; the one that comes next.

        Boundaries inside of placed buffers may have come free.  The goals follow each other from
        the last one made, and then comes `after`.
        """
        items, stop, spans = self.left.items, self.left.stop, self.left.spans
        here = first
        for s in range(self.left.start[placed], stop[placed] - 1):
            if spans[s] == 0:
                cut = here
                for k in range(here, last):
                    i = items[k]
                    if stop[i] <= s + 1:
                        items[k], items[cut] = items[cut], i
                        cut += 1
                if here < cut < last:
                    after, here = self._goal(here, cut, after), cut
        return self._goal(here, last, after)

    def _goal(self, begin: int, end: int, after: int) -> int:
        """A new goal, by its number."""
        number = self._goals
        self._begin[number], self._end[number], self._follow[number] = begin, end, after
        self._maker[number] = self._depth
        self._goals += 1
        return number
