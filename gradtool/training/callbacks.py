"""Who hears of a training as it goes on, and may end it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradtool.training.fit import Fit


@dataclass(frozen=True)
class Begun:
    """What is about to be done.

    `steps` are all of them, None where only the data know; `first` are done already.  `planned`
    are the bytes of the arena, None until a batch has told the sizes.
    """

    steps: int | None
    first: int
    per_epoch: int | None
    batch: int | None
    micro_batches: int


class Watcher:
    """Hears everything, and does nothing about it."""

    def begun(self, begun: Begun) -> None:
        """The first step is next."""

    def tries(self, micro_batches: int, examples: int) -> None:
        """A step in so many parts of so many examples is planned for a memory."""

    def fitted(self, fit: Fit) -> None:
        """It is settled how a memory is kept to."""

    def stepped(self, step: int, epoch: int, loss: float, rate: float, planned: int) -> None:
        """A step is done, in an arena of `planned` bytes."""

    def skipped(self, step: int, scale: float) -> None:
        """A step has updated nothing, because a gradient was infinite at a loss scale."""

    def evaluated(self, step: int, found: Mapping[str, float], *, best: bool) -> None:
        """The model was evaluated."""

    def saved(self, step: int, path: Path) -> None:
        """A checkpoint was written."""

    def said(self, line: str) -> None:
        """Something people should hear."""

    def ended(self) -> None:
        """Training is over, whatever has ended it."""

    def stops(self) -> bool:
        """Whether somebody has asked to stop; asked after each step."""
        return False


class Watchers(Watcher):
    """Several who hear the same; any of them may stop it."""

    def __init__(self, *watchers: Watcher) -> None:
        self._all = watchers

    def begun(self, begun: Begun) -> None:
        for each in self._all:
            each.begun(begun)

    def tries(self, micro_batches: int, examples: int) -> None:
        for each in self._all:
            each.tries(micro_batches, examples)

    def fitted(self, fit: Fit) -> None:
        for each in self._all:
            each.fitted(fit)

    def stepped(self, step: int, epoch: int, loss: float, rate: float, planned: int) -> None:
        for each in self._all:
            each.stepped(step, epoch, loss, rate, planned)

    def skipped(self, step: int, scale: float) -> None:
        for each in self._all:
            each.skipped(step, scale)

    def evaluated(self, step: int, found: Mapping[str, float], *, best: bool) -> None:
        for each in self._all:
            each.evaluated(step, found, best=best)

    def saved(self, step: int, path: Path) -> None:
        for each in self._all:
            each.saved(step, path)

    def said(self, line: str) -> None:
        for each in self._all:
            each.said(line)

    def ended(self) -> None:
        for each in self._all:
            each.ended()

    def stops(self) -> bool:
        return any(each.stops() for each in self._all)
