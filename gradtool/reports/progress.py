"""A progress bar on stderr: on terminals only, and only when the task takes a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gradtool.reports import live
from gradtool.reports.console import Color
from gradtool.text.names import shorten
from gradtool.text.units import format_wait

DELAY = 0.5  # seconds before the bar appears
AGAIN = 0.25  # seconds between two versions
WIDEST = 40  # cells of its description
SURE = 0.02  # of the task: from then on the rest can be told


class Bar:
    """The progress of a task. This one is not shown."""

    def advance(self, amount: int = 1) -> None:
        """Report `amount` more as done."""

    def reach(self, done: int, total: int) -> None:
        """Report `done` of `total` parts of the next one as done."""

    def approach(self, done: int, total: int) -> None:
        """Report the same of a round; if nobody knows how many follow, half of the rest is its."""


@contextmanager
def bar(
    description: str, total: int | None = None, *, color: Color = "auto", quiet: bool = False
) -> Iterator[Bar]:
    """A bar for the task in the block, of unknown length without `total`; it leaves no trace."""
    line = live.Line(color, quiet=quiet)
    if not line.shows:
        yield Bar()
        return
    shown = _Shown(description, total, line)
    thread = threading.Thread(target=shown.draw, daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        shown.ended.set()
        thread.join()
        live.clear()


class _Shown(Bar):
    """Counts in the thread of the task, and is drawn by another one until it has ended."""

    def __init__(self, description: str, total: int | None, line: live.Line) -> None:
        self.ended = threading.Event()
        self._description = shorten(description, WIDEST)
        self._total = total
        self._line = line
        self._done = 0
        self._part = 0.0
        self._round = 0, 0.0  # how far it is, and where it began
        self._began = time.monotonic()

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        self._part, self._round = 0.0, (0, 0.0)

    def reach(self, done: int, total: int) -> None:
        self._part = done / max(total, 1)

    def approach(self, done: int, total: int) -> None:
        before, start = self._round
        start = self._part if done < before else start
        self._round = done, start
        self._part = start + (1 - start) / 2 * done / max(total, 1)

    def draw(self) -> None:
        """Show the bar again and again, unless the task has ended before it is worth it."""
        wait = DELAY
        while not self.ended.wait(wait):
            seconds, share, clauses = time.monotonic() - self._began, None, [self._description]
            if self._total is not None:
                share = (self._done + self._part) / max(self._total, 1)
                clauses.append(f"{self._done}/{self._total}")
                if SURE < share < 1:
                    clauses.append(f"left {format_wait(seconds * (1 / share - 1))}")
            self._line.show([*clauses, format_wait(seconds)], share)
            wait = AGAIN
