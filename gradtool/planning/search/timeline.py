"""A schedule entry by entry: any steps in any order, and when the instances of storages are alive.

`CostModel.weigh` knows schedules by what they drop; here they are rows of places in which a step
may run anywhere, so that moves can change the order, and recompute earlier than is needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from gradtool.planning.flow import Integers
from gradtool.planning.search.cost_model import CostModel

Life: TypeAlias = list[int]


class Timeline:
    """The entries of a schedule that count, each a place of the base order.

    `first` says which of them run for the first time, `profile` the bytes alive at each, `extra`
    the cost of the others.  Every step must be there, and whatever it reads before it.
    """

    def __init__(self, work: CostModel, places: Sequence[int]) -> None:
        firsts = _firsts(places)
        kept, profile = work.alive(places, firsts)
        self.work = work
        self.places = [places[e] for e in kept]
        self.profile: Integers = np.array(profile, dtype=np.int64)
        self.extra = work.work_again(self.places)

    @property
    def peak(self) -> int:
        """The most bytes alive at once."""
        return int(self.profile.max(initial=self.work.simulator.fixed))

    @cached_property
    def first(self) -> list[bool]:
        """Which entries run their step for the first time."""
        return _firsts(self.places)

    @cached_property
    def lives(self) -> dict[int, list[Life]]:
        """By storage, the entries that make and then read each of its instances.

        Storages that stay to the end have one.
        """
        work = self.work
        found: dict[int, list[Life]] = {r: [] for r in work.maker}
        for entry, place in enumerate(self.places):
            for root in work.reads[place]:
                found[root][-1].append(entry)
            for root in work.writes[place]:
                if self.first[entry] or root not in work.live_out:
                    found[root].append([entry])
        return found

    def life(self, root: int, entry: int) -> Life:
        """The instance of a storage that an entry reads, or would read."""
        lives = self.lives[root]
        k = len(lives) - 1
        while lives[k][0] >= entry:
            k -= 1
        return lives[k]

    def before(self, root: int, entry: int) -> int:
        """The entry that touches the instance that an entry reads before that one does."""
        life = self.life(root, entry)
        return life[bisect_left(life, entry) - 1]

    def repeats(self) -> list[int]:
        """The entries that run a step again, at a cost."""
        costs = self.work.costs
        return [e for e, p in enumerate(self.places) if not self.first[e] and costs[p]]


def _firsts(places: Sequence[int]) -> list[bool]:
    seen: set[int] = set()
    found = []
    for place in places:
        found.append(place not in seen)
        seen.add(place)
    return found
