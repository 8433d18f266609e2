"""Where in a schedule a storage lies idle, and which drops make its step run again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradtool.planning.rework import Drops, Rework, Weighed


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries `last` and `next` of a schedule touch an instance of a storage, none between does.

    `place` is that of `last` in the base order: dropping the storage there ends its life at `last`.
    """

    root: int
    place: int
    last: int
    next: int


def idle(work: Rework, weighed: Weighed) -> Iterator[Gap]:
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


def absent(work: Rework, weighed: Weighed, drops: Drops) -> list[Gap]:
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


def with_drop(drops: Drops, root: int, place: int) -> Drops:
    """The drops and one more."""
    return {**drops, place: drops.get(place, frozenset()) | {root}}


def without_drop(drops: Drops, root: int, place: int) -> Drops:
    """The drops but one."""
    return {**drops, place: drops[place] - {root}}
