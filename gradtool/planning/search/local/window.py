"""A range of positions in a schedule, and what the rest of the schedule asks of its contents."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """What runs in a range of positions, what comes into it and what has to leave it.

    `steps` run there now, from position `begin` on; `runs` says how often each step that could run
    there may.  `first` are those that have not run before, `frozen` those that stay where they are.
    Of the storages that come in, those in `settled` are there from begin to end whatever the window
    does, `entering` ones for as long as it wants (now up to the position given with each); `owed`
    ones have to be there at its end.  `room` are the bytes left beside the settled, `peak` what the
    steps there now take of them.  `before` are pairs of steps that keep their order.
    """

    begin: int
    steps: tuple[int, ...]
    runs: Mapping[int, int]
    first: frozenset[int]
    frozen: frozenset[int]
    settled: frozenset[int]
    entering: Mapping[int, int]
    owed: tuple[int, ...]
    room: int
    peak: int
    before: tuple[tuple[int, int], ...]

    def positions(self, step: int) -> list[int]:
        """Where a step runs now."""
        return [p for p, s in enumerate(self.steps, self.begin) if s == step]

    @property
    def fits(self) -> bool:
        """Whether what runs now does with the room."""
        return self.peak <= self.room

    @property
    def question(self) -> Hashable:
        """What the best contents depend on: those of now, wherever they are, and what is asked."""
        runs, entering = tuple(self.runs.items()), tuple(self.entering)
        given = (self.first, self.frozen, self.settled, self.owed, self.before)
        return (self.steps, runs, entering, self.room, *given)
