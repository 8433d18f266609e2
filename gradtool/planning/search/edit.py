"""A change of a schedule, and what is known of it before the schedule is weighed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gradtool.planning.flow import Integers


class Edit(NamedTuple):
    """Entries that go, and places that come in before entry `at`."""

    gone: tuple[int, ...]
    at: int
    runs: tuple[int, ...] = ()

    def applied(self, places: Sequence[int]) -> list[int]:
        """The places of the changed schedule."""
        gone = set(self.gone)
        before = [p for e, p in enumerate(places[: self.at]) if e not in gone]
        behind = [p for e, p in enumerate(places[self.at :], self.at) if e not in gone]
        return [*before, *self.runs, *behind]


class Proposal(NamedTuple):
    """An edit, the work that it adds, and about what is then alive at each entry."""

    edit: Edit
    cost: int
    profile: Integers


class Gap(NamedTuple):
    """Between entries `last` and `next` an instance of a storage is alive without being touched.

    `price` is the work of its step for each byte above the budget that it takes.
    """

    price: float
    root: int
    last: int
    next: int
