"""Runs that go to the other side of an entry: a reader before it, or a maker behind it.

Steps that draw at random never pass each other, nor does what reads a parameter pass what
overwrites it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gradtool.planning.ladder.line import Line
from gradtool.planning.search.cost_model import CostModel
from gradtool.program.overwriting import write_after_read

_GROUP = 6


class Passing:
    """Which runs of a program may pass which others."""

    def __init__(self, work: CostModel) -> None:
        self.work = work
        place = {step: p for p, step in enumerate(work.order)}
        self.apart: dict[int, set[int]] = {}
        for one, other in write_after_read(work.program):
            self.apart.setdefault(place[one], set()).add(place[other])
            self.apart.setdefault(place[other], set()).add(place[one])
        steps = work.program.steps
        self.random = {p for step, p in place.items() if not steps[step].recomputable}

    def pull(self, line: Line, entry: int, before: int) -> bool:
        """Let an entry run before another, with what it needs from behind, if that is little."""
        if entry not in line.place or before not in line.place or entry < before:
            return False
        group, waiting = {entry}, [entry]
        while waiting:
            other = waiting.pop()
            for r in self.work.reads[line.place[other]]:
                run = line.run(r, other)
                if run is None or run == before or (run > before and len(group) == _GROUP):
                    return False
                if run > before and run not in group:
                    group.add(run)
                    waiting.append(run)
        passed = line.entries[line.at(before) : line.at(entry)]
        if not self.may_pass(line, group, (e for e in passed if e not in group)):
            return False
        return all(_move(line, each, before) for each in sorted(group))

    def push(self, line: Line, entry: int, before: int) -> bool:
        """Let an entry run later, right before another, which nobody needs it for earlier."""
        if entry not in line.place or before not in line.place:
            return False
        uses = (line.uses.get(r, ()) for r in self.work.writes[line.place[entry]])
        if before > min((u for use in uses for u in use if u > entry), default=before):
            return False
        passed = line.entries[line.at(entry) + 1 : line.at(before)]
        return self.may_pass(line, (entry,), passed) and _move(line, entry, before)

    def may_pass(self, line: Line, moved: Iterable[int], others: Iterable[int]) -> bool:
        """Whether the steps at some entries may run on the other side of those at others."""
        places = {line.place[e] for e in moved}
        apart = set[int]().union(*(self.apart[p] for p in places if p in self.apart))
        if not places.isdisjoint(self.random):
            apart |= self.random
        return not apart or apart.isdisjoint(line.place[e] for e in others)


def _move(line: Line, entry: int, before: int) -> bool:
    free = line.before(before)
    place = line.place[entry]
    if free is None or not line.has_room(place):
        return False
    line.add(free, place)
    if entry in line.place:
        line.remove(entry)
    return True
