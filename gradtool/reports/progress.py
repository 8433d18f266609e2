"""A progress bar on stderr: on terminals only, and only when the task takes a while."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gradtool.reports.console import Color, draws, is_dumb, is_terminal, stderr_console
from gradtool.text.names import escape, fit, shorten

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DELAY = 0.5  # seconds before the bar appears
WIDEST = 40  # cells of its description


class Bar:
    """How far a task is. This one is not shown."""

    def advance(self, amount: int = 1) -> None:
        """Say that `amount` more is done."""

    def reach(self, done: int, total: int) -> None:
        """Say that of the next one `done` of `total` parts are done."""

    def approach(self, done: int, total: int) -> None:
        """Say the same of a round; where nobody knows how many follow, half of the rest is its."""


@contextmanager
def bar(description: str, total: int | None = None, *, color: Color = "auto") -> Iterator[Bar]:
    """A bar for the task in the block, of unknown length without `total`; it leaves no trace."""
    if not is_terminal(sys.stderr) or is_dumb():
        yield Bar()
        return
    shown = _Shown(description, total, color)
    timer = threading.Timer(DELAY, shown.start)
    timer.daemon = True
    timer.start()
    try:
        yield shown
    finally:
        timer.cancel()
        shown.stop()


class _Shown(Bar):
    """Counts from the start, and draws from `start` to `stop`, which come from two threads."""

    def __init__(self, description: str, total: int | None, color: Color) -> None:
        self._description = description
        self._total = total
        self._color = color
        self._done = 0
        self._part = 0.0
        self._round = 0, 0.0  # how far it is, and where it began
        self._ended = False
        self._lock = threading.Lock()
        self._drawn: tuple[Progress, TaskID] | None = None

    def advance(self, amount: int = 1) -> None:
        with self._lock:
            self._done += amount
            self._part, self._round = 0.0, (0, 0.0)
            self._draw()

    def reach(self, done: int, total: int) -> None:
        with self._lock:
            self._part = done / max(total, 1)
            self._draw()

    def approach(self, done: int, total: int) -> None:
        with self._lock:
            before, start = self._round
            start = self._part if done < before else start
            self._round = done, start
            self._part = start + (1 - start) / 2 * done / max(total, 1)
            self._draw()

    def _draw(self) -> None:
        if self._drawn is not None:
            progress, task = self._drawn
            progress.update(task, completed=self._done + self._part, done=self._done)

    def start(self) -> None:
        """Show the bar, unless the work has ended already."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._ended:
                return
            console = stderr_console(self._color)
            text = fit(escape(self._description), console.encoding)
            progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("" if self._total is None else "{task.fields[done]}/{task.total}"),
                TimeElapsedColumn(),
                console=console,
                transient=True,
                redirect_stdout=False,  # results must not end up on stderr
            )
            short = shorten(text, WIDEST, ellipsis="…" if draws(console) else "...")
            self._drawn = progress, progress.add_task(short, total=self._total, done=self._done)
            self._draw()
            progress.start()

    def stop(self) -> None:
        with self._lock:
            self._ended = True
            if self._drawn is not None:
                self._drawn[0].stop()
