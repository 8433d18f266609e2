"""Edits that let a step run earlier or later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gradtool.planning.flow import Integers
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.edit import Edit, Proposal
from gradtool.planning.search.timeline import Timeline
from gradtool.program.overwriting import write_after_read

_GROUP = 6


class Shifts:
    """The moves of entries over others, to either side of a peak.

    Steps that draw at random never pass each other, nor does what reads a parameter pass what
    overwrites it.
    """

    def __init__(self, work: CostModel) -> None:
        self.work = work
        place = {step: p for p, step in enumerate(work.order)}
        self.apart: dict[int, set[int]] = {}
        for one, other in write_after_read(work.program):
            self.apart.setdefault(place[one], set()).add(place[other])
            self.apart.setdefault(place[other], set()).add(place[one])
        steps = work.program.steps
        self.random = {p for step, p in place.items() if not steps[step].recomputable}

    def pulled(self, line: Timeline, entry: int, peak: int) -> Iterator[Proposal]:
        """Let an entry run before the peak, with what it needs from behind, if that is little."""
        group = {entry}
        waiting = [entry]
        while waiting:
            other = waiting.pop()
            for root in self.work.reads[line.places[other]]:
                born = line.life(root, other)[0]
                if born == peak or (born > peak and len(group) == _GROUP):
                    return
                if born > peak and born not in group:
                    group.add(born)
                    waiting.append(born)
        moved = tuple(sorted(group))
        if self._may_pass(line, moved, (e for e in range(peak, moved[-1]) if e not in group)):
            profile = line.profile.copy()
            for other in moved:
                self._count_earlier(line, other, peak, profile)
            runs = tuple(line.places[e] for e in moved)
            yield Proposal(Edit(moved, peak, runs), 0, profile)

    def _count_earlier(self, line: Timeline, entry: int, to: int, profile: Integers) -> None:
        """Count what an entry writes from an earlier one on, and what it reads last up to there."""
        work, place = self.work, line.places[entry]
        for root in work.writes[place]:
            profile[to:entry] += work.bytes[root]
        for root in work.reads[place]:
            if root not in work.live_out and line.life(root, entry)[-1] == entry:
                profile[max(line.before(root, entry) + 1, to) : entry] -= work.bytes[root]

    def pushed(self, line: Timeline, entry: int, peak: int) -> Iterator[Proposal]:
        """Let an entry run behind the peak, right before the first read of what it writes."""
        work, place = self.work, line.places[entry]
        made = [life for r in work.writes[place] for life in line.lives[r] if life[0] == entry]
        to = min(life[1] for life in made if len(life) > 1)
        if to <= peak or not self._may_pass(line, (entry,), range(entry + 1, to)):
            return
        profile = line.profile.copy()
        for root in work.writes[place]:
            profile[entry + 1 : to] -= work.bytes[root]
        for root in work.reads[place]:
            dies = line.life(root, entry)[-1]
            if root not in work.live_out and dies < to:
                profile[dies + 1 : to] += work.bytes[root]
        yield Proposal(Edit((entry,), to, (place,)), 0, profile)

    def _may_pass(self, line: Timeline, moved: Iterable[int], others: Iterable[int]) -> bool:
        places = {line.places[e] for e in moved}
        apart = set().union(*(self.apart[p] for p in places if p in self.apart))
        if not places.isdisjoint(self.random):
            apart |= self.random
        return not apart or apart.isdisjoint(line.places[e] for e in others)
