"""What to change around an entry of a schedule so that fewer bytes are alive there.

A storage that is alive over the entry without being touched by it can be computed again behind it;
its readers can run before it, or its maker behind it.  A step that runs again can stop doing so.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.edit import Gap, Proposal
from gradtool.planning.search.reruns import again, erased
from gradtool.planning.search.shifts import Shifts
from gradtool.planning.search.timeline import Timeline

_GAPS = 48


class Edits:
    """The edits of a program's schedules within a budget in bytes."""

    def __init__(self, work: CostModel, budget: int) -> None:
        self.work = work
        self.budget = budget
        self.shifts = Shifts(work)

    def around(self, line: Timeline, peak: int) -> Iterator[Proposal]:
        """The edits that may lower what is alive at an entry, which is above the budget.

        Of what could be computed again, only what takes least work per byte and entry is.
        """
        gaps = sorted(self._over(line, peak))
        for gap in gaps[:_GAPS]:
            yield from again(self.work, line, gap, peak, self.budget)
        for gap in gaps:
            yield from self.shifts.pulled(line, gap.next, peak)
            if line.places[gap.last] == self.work.maker[gap.root]:
                yield from self.shifts.pushed(line, gap.last, peak)
        for entry in sorted({peak, *(gap.next for gap in gaps)}):
            if not line.first[entry]:
                yield erased(self.work, line, entry)

    def _over(self, line: Timeline, peak: int) -> Iterator[Gap]:
        """What is alive over an entry and not touched there."""
        work, here = self.work, line.places[peak]
        above = np.cumsum(line.profile > self.budget).tolist()
        touched = {*work.reads[here], *work.writes[here], *work.live_out}
        for root, lives in line.lives.items():
            if root in touched or not work.bytes[root]:
                continue
            for life in lives:
                if life[0] < peak < life[-1]:
                    k = bisect_right(life, peak)
                    relief = work.bytes[root] * (above[life[k] - 1] - above[life[k - 1]])
                    yield Gap(work.costs[work.maker[root]] / relief, root, life[k - 1], life[k])
