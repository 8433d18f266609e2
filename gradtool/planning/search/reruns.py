"""Edits that let a step run again, or no longer."""

from __future__ import annotations

from collections.abc import Iterator

from gradtool.planning.flow import Integers
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.edit import Edit, Gap, Proposal
from gradtool.planning.search.timeline import Timeline


def again(work: CostModel, line: Timeline, gap: Gap, peak: int, budget: int) -> Iterator[Proposal]:
    """Compute a storage again behind the peak: before its next read, or where least is alive.

    What that reads and is not alive there stays alive for it where the budget has room, and is else
    computed again too; or all of it stays alive.
    """
    if not work.may_drop(gap.root):
        return
    quiet = int(line.profile[peak + 1 : gap.next + 1].argmin()) + peak + 1
    for at in dict.fromkeys((gap.next, quiet)):
        for stays in (False, True):
            profile = line.profile.copy()
            profile[gap.last + 1 : at] -= work.bytes[gap.root]
            room = None if stays else budget
            runs = _chain(work, line, work.maker[gap.root], at, profile, room)
            yield Proposal(Edit((), at, runs), sum(work.costs[p] for p in runs), profile)
            if len(runs) == 1:
                break


def _chain(
    work: CostModel, line: Timeline, place: int, at: int, profile: Integers, budget: int | None
) -> tuple[int, ...]:
    """The steps that run so that one can run again.

    What else they read is held where it fits into the budget, and counted in the profile; without a
    budget everything is.
    """
    runs: dict[int, None] = {}
    held: set[int] = set()
    waiting = [place]
    while waiting:
        step = waiting.pop()
        if step in runs:
            continue
        runs[step] = None
        for root in work.reads[step]:
            if root in work.live_out or root in held or work.maker[root] in runs:
                continue
            dies = line.life(root, at)[-1]
            if dies >= at:
                continue
            size, during = work.bytes[root], profile[dies + 1 : at]
            if budget is None or during.max(initial=0) + size <= budget or not work.may_drop(root):
                held.add(root)
                during += size
            else:
                waiting.append(work.maker[root])
    return tuple(sorted(runs))


def erased(work: CostModel, line: Timeline, entry: int) -> Proposal:
    """Do not run a step again: what it made before stays alive instead."""
    place = line.places[entry]
    profile = line.profile.copy()
    for root in work.writes[place]:
        if root not in work.live_out:
            profile[line.life(root, entry)[-1] + 1 : entry + 1] += work.bytes[root]
    for root in work.reads[place]:
        if root not in work.live_out and line.life(root, entry)[-1] == entry:
            profile[line.before(root, entry) + 1 : entry + 1] -= work.bytes[root]
    return Proposal(Edit((entry,), entry), -work.costs[place], profile)
