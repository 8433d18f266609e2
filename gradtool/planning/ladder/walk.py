"""A schedule on its way down to a budget: what can be asked of it, in Python or natively."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from gradtool.planning.flow import Integers
from gradtool.planning.search.cost_model import CostModel

TRIALS = 16


class Descent(NamedTuple):
    """How far a walk goes down.

    It ends where nothing helps, more than `patience` times, or it would cost `worth` or more; of
    changes that help, so many `trials` are compared.  With `ends`, all readers of a storage may go
    before what touches it last.
    """

    worth: int | None = None
    patience: int = 0
    trials: int = TRIALS
    ends: bool = False


class State(NamedTuple):
    """A schedule that was found: its peak in bytes, its extra work, the places of its steps."""

    peak: int
    extra: int
    places: tuple[int, ...]


class Walk(ABC):
    """A schedule that is changed.  `left` are the entries that may still be looked at."""

    work: CostModel
    left: int

    @property
    @abstractmethod
    def peak(self) -> int:
        """The most bytes alive at once."""

    @property
    @abstractmethod
    def extra(self) -> int:
        """The cost of all runs but one of every step."""

    @property
    @abstractmethod
    def places(self) -> list[int]:
        """The steps in running order."""

    @property
    @abstractmethod
    def profile(self) -> Integers:
        """Bytes alive at each entry."""

    @abstractmethod
    def load(self, places: Sequence[int]) -> None:
        """Begin anew at a schedule."""

    @abstractmethod
    def fit(self, budget: int, how: Descent = Descent()) -> bool:  # noqa: B008 - frozen
        """Run steps again until the budget holds, each time what costs least per excess gone.

        False if a descent ends before.
        """

    @abstractmethod
    def trim(self, budget: int) -> None:
        """Run no longer again what the budget has room to keep, the dearest first."""

    @abstractmethod
    def find_idle(self, number: int) -> int:
        """How many storages are alive over an entry and not touched there."""

    @abstractmethod
    def rerun_idle(self, number: int, budget: int) -> None:
        """Compute one of those again for its next use; nothing changes if that cannot be."""

    @abstractmethod
    def leave_out(self, number: int, count: int) -> None:
        """Leave out some repeats that follow each other, from one number on."""

    @property
    def state(self) -> State:
        """How the schedule stands."""
        return State(self.peak, self.extra, tuple(self.places))

    def go(self, state: State) -> None:
        """Begin again at a schedule."""
        if tuple(self.places) != state.places:
            self.load(state.places)

    def weighed(self, places: Sequence[int]) -> State:
        """A schedule known from elsewhere."""
        self.load(places)
        return self.state
