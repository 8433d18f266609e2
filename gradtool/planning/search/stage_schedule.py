"""The schedule of a solution of the integer programme of some stages.

Within a stage steps run in base order, each right after the missing producers of its reads.  The
programme counts memory at some moments only, so the schedule may take more than the budget.
"""

from __future__ import annotations

from typing import NamedTuple

from gradtool.planning.schedule import alive
from gradtool.planning.search.staged_milp import Relaxed, Stages


class Staged(NamedTuple):
    """A schedule as places of the base order, and the stage of each entry."""

    places: list[int]
    stages: list[int]


def staged(programme: Stages, solved: Relaxed) -> Staged:
    """The schedule of a solution; steps missing in the programme run as early as they can.

    Dead instances are left out.
    """
    work, found = programme.work, _Run(programme, solved).staged
    is_alive = alive(work.program, [work.order[place] for place in found.places])
    kept = [entry for entry, stays in enumerate(is_alive) if stays]
    return Staged([found.places[e] for e in kept], [found.stages[e] for e in kept])


class _Run:
    def __init__(self, programme: Stages, solved: Relaxed) -> None:
        self.work = programme.work
        self.staged = Staged([], [])
        self._there: set[int] = set()
        asked = set(programme.steps)
        self._waiting = [s for s in range(len(self.work.reads)) if s not in asked]
        for stage, runs in enumerate(solved.runs):
            end = programme.instants[stage].at if stage < programme.count else -1
            for step in sorted(runs - {end}):
                self._go(step, stage)
            if end < 0:
                break
            self._go(end, stage)
            self._free(programme, solved.kept[stage])
        for step in self._waiting:
            self._go(step, programme.count)

    def _go(self, step: int, stage: int) -> None:
        """Run a step after those whose results it lacks."""
        stack = [step]
        while stack:
            lacks = [r for r in self.work.reads[stack[-1]] if r not in self._there]
            if lacks:
                stack.append(self.work.maker[lacks[0]])
                continue
            self._put(stack.pop(), stage)

    def _put(self, step: int, stage: int) -> None:
        self.staged.places.append(step)
        self.staged.stages.append(stage)
        self._there.update(self.work.writes[step])
        if step in self._waiting:
            self._waiting.remove(step)
        ready = [s for s in self._waiting if self._there.issuperset(self.work.reads[s])]
        for other in ready:
            if other in self._waiting:
                self._put(other, stage)

    def _free(self, programme: Stages, kept: frozenset[int]) -> None:
        gone = {
            r for r in self._there
            if r in programme.roots and r not in kept and self.work.may_drop(r)
        }  # fmt: skip
        self._there -= gone
