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

    def stops(self) -> bool:
        """Whether somebody has asked to stop; asked after each step."""
        return False
