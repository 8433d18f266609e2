"""Running a step again right before an entry: what that needs, what it costs, where it helps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from gradtool.planning.ladder.line import Line
from gradtool.planning.search.cost_model import CostModel

_DEPTH = 200
_MOST = 256  # runs that one change puts in
_COUNTED = 64  # steps of which it is found out what they cost together


class Reruns:
    """The steps of a program that may run again."""

    def __init__(self, work: CostModel) -> None:
        self.work = work
        self._may_drop = {r: work.may_drop(r) and work.bytes[r] > 0 for r in work.maker}

    def again(self, line: Line, p: int, reader: int, room: int | None, depth: int = 0) -> bool:
        """Run a step again right before an entry; False if that cannot be.

        What it reads and is not alive there stays alive where memory has `room` for it (None:
        wherever), and is else computed again too.
        """
        work = self.work
        entry = line.before(reader)
        if entry is None or depth > _DEPTH:
            return False
        for r in work.reads[p]:
            end = line.until(r, entry)
            if end is not None:
                if r in work.live_out or end >= entry or not self._may_drop[r] or room is None:
                    continue
                if line.most(end, entry) + work.bytes[r] <= room:
                    continue
            elif not work.may_drop(r):
                return False
            if not self.again(line, work.maker[r], entry, room, depth + 1):
                return False
        if line.before(reader) is None or entry in line.place or line.changes >= _MOST:
            return False
        if not line.has_room(p):
            return False
        line.add(entry, p)
        return True

    def near(self, line: Line, p: int, reader: int) -> int:
        """What a step costs with those whose results it reads that are not alive at an entry."""
        work = self.work
        cost = work.costs[p]
        for r in work.reads[p]:
            uses = line.uses[r]
            if self._may_drop[r] and (not uses or uses[-1] < reader):
                cost += work.costs[work.maker[r]]
        return cost

    def cost(self, line: Line, p: int, reader: int, room: int) -> int:
        """What it costs to run a step again before an entry, with what is missing there.

        Of a great many steps that are missing, some are left out.
        """
        work = self.work
        seen, waiting, cost = {p}, [p], 0
        while waiting:
            q = waiting.pop()
            cost += work.costs[q]
            for r in work.reads[q]:
                maker = work.maker[r]
                if maker in seen or not self._may_drop[r] or len(seen) >= _COUNTED:
                    continue
                end = line.until(r, reader)
                if end is not None and (
                    end >= reader or line.most(end, reader) + work.bytes[r] <= room
                ):
                    continue
                seen.add(maker)
                waiting.append(maker)
        return cost

    def idle(self, line: Line, entry: int) -> Iterator[tuple[int, int, int]]:
        """Storages that are alive over an entry and not touched there, last and next touch."""
        work, here = self.work, line.place[entry]
        touched = {*work.reads[here], *work.writes[here]}
        for root, uses in line.uses.items():
            if not uses or uses[-1] <= entry or not self._may_drop[root] or root in touched:
                continue
            runs = line.runs[work.maker[root]]
            i = bisect_left(runs, entry)
            j = bisect_right(uses, entry)
            if i and (i == len(runs) or uses[j] < runs[i]):
                yield root, max(runs[i - 1], uses[j - 1] if j else 0), uses[j]
