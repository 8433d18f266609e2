"""Who hears of a training as it goes on, and may end it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


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
