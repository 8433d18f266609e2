"""Where in a schedule a storage lies idle, and which drops make its step run again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gradtool.planning.search.cost_model import CostModel, Drops, Weighed


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries `last` and `next` of a schedule touch an instance of a storage, none between does.

    `place` is that of `last` in the base order: dropping the storage there ends its life at `last`.
    """

    root: int
    place: int
    last: int
    next: int


def idle(work: CostModel, weighed: Weighed) -> Iterator[Gap]:
    """The gaps in which a storage is alive and could be dropped instead."""
    during = weighed.during
    touched: dict[int, int] = {}
    for entry, place in enumerate(weighed.places):
        for root in work.reads[place]:
            last = touched[root]
            if during[last] < during[entry] and last + 1 < entry and work.may_drop(root):
                yield Gap(root, during[last], last, entry)
            touched[root] = entry
        touched.update(dict.fromkeys(work.writes[place], entry))


class Lives:
    """From which entry to which the instances of each storage are alive in a schedule."""

    def __init__(self, work: CostModel, weighed: Weighed) -> None:
        self.work = work
        self.during = weighed.during
        self.born: dict[int, list[int]] = {r: [] for r in work.maker}
        self.last: dict[int, list[int]] = {r: [] for r in work.maker}
        for entry, place in enumerate(weighed.places):
            for root in work.reads[place]:
                self.last[root][-1] = entry
            for root in work.writes[place]:
                self.born[root].append(entry)
                self.last[root].append(entry)

    def with_inputs(self, gap: Gap) -> list[tuple[int, int]]:
        """The drop of a gap, and drops of what would have to stay alive just to run its step again.

        Each is a storage and the place at which it ends now.
        """
        found = {gap.root: gap.place}
        waiting = [gap.root]
        while waiting:
            for root in self.work.reads[self.work.maker[waiting.pop()]]:
                instance = bisect_left(self.born[root], gap.next) - 1
                last = self.last[root][instance]
                if root not in found and last < gap.next and self.work.may_drop(root):
                    found[root] = self.during[last]
                    waiting.append(root)
        return list(found.items())


def absent(work: CostModel, weighed: Weighed, drops: Drops) -> list[Gap]:
    """The gaps in which a storage is not alive, because of the drop at their place.

    They end where its step runs again.
    """
    during = weighed.during
    places = sorted(drops)
    touched: dict[int, int] = {}
    found = []
    for entry, place in enumerate(weighed.places):
        for root in work.reads[place]:
            touched[root] = entry
        for root in work.writes[place]:
            last = touched.get(root)
            if last is not None and during[entry] != place:
                dropped = _dropped(drops, places, root, during[last], during[entry])
                found += [Gap(root, p, last, entry) for p in dropped]
            touched[root] = entry
    return found


def _dropped(
    drops: Drops, places: Sequence[int], root: int, start: int, stop: int
) -> Iterator[int]:
    """Places from `start` to before `stop` at which a storage is dropped."""
    near = range(start, stop) if stop - start < len(places) else places
    return (p for p in near if start <= p < stop and root in drops.get(p, ()))


def with_drops(drops: Drops, more: Iterable[tuple[int, int]]) -> Drops:
    """The drops and more of them, each a storage and a place."""
    found = dict(drops)
    for root, place in more:
        found[place] = found.get(place, frozenset()) | {root}
    return found


def without_drop(drops: Drops, root: int, place: int) -> Drops:
    """The drops but one."""
    return {**drops, place: drops[place] - {root}}
