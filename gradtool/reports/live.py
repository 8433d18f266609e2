"""The last line of stderr, on a terminal: written over as things go on, and never left there."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from gradtool.reports.console import Color, columns, is_dumb, is_terminal, wants_color
from gradtool.text.names import escape, fit, shorten

EVERY = 0.1  # seconds between two versions
LEAST, MOST = 5, 24  # cells of a bar
DONE, REST = "━", "─"
CYAN, DIM, PLAIN = "\x1b[36m", "\x1b[2m", "\x1b[0m"

_lock = threading.RLock()
_is_there = False


class Line:
    """A line on stderr if it is a terminal; nothing anywhere else.

    All output of a reporter takes it away first (`away`).
    """

    def __init__(self, color: Color = "auto", *, quiet: bool = False) -> None:
        self.shows = not quiet and is_terminal(sys.stderr) and not is_dumb()
        self._color = color
        self._next = 0.0

    def is_due(self) -> bool:
        """Whether it is time for another version."""
        return self.shows and time.monotonic() >= self._next

    def show(self, clauses: Sequence[str], share: float | None = None) -> None:
        """Overwrite the line: a bar if `share` is known, and the clauses that fit.

        The first clause is shortened where it has to be; of the others, the most important first,
        so many are there in full as fit.
        """
        global _is_there  # noqa: PLW0603 - a terminal has one last line
        if not self.shows:
            return
        encoding = getattr(sys.stderr, "encoding", None) or "ascii"
        first, *further = (fit(escape(clause), encoding) for clause in clauses)
        width = _width()
        text = shorten(first, width, ellipsis=fit("…", encoding))
        least = 0 if share is None else min(max(width // 4 - LEAST, LEAST), MOST) + 1
        for clause in further:
            if _cells(text) + 2 + _cells(clause) + least > width:
                break
            text += f"  {clause}"
        room = min(width - _cells(text) - 1, MOST)
        bar = "" if share is None or room < LEAST else f"{self._bar(share, room, encoding)} "
        with _lock:
            _write(f"\r{bar}{text}\x1b[K")
            _is_there = True
        self._next = time.monotonic() + EVERY

    def _bar(self, share: float, room: int, encoding: str) -> str:
        done = int(room * min(max(share, 0.0), 1.0))
        parts = fit(DONE, encoding) * done, fit(REST, encoding) * (room - done)
        if not wants_color(self._color, sys.stderr):
            return "".join(parts)
        return f"{CYAN}{parts[0]}{DIM}{parts[1]}{PLAIN}"


@contextmanager
def away() -> Iterator[None]:
    """Take the line away; none comes back while the block writes others."""
    global _is_there  # noqa: PLW0603 - a terminal has one last line
    with _lock:
        if _is_there:
            _write("\r\x1b[K")
            _is_there = False
        yield


def clear() -> None:
    """Take the line away."""
    with away():
        pass


def _width() -> int:
    """Cells of a line with room for the cursor, whatever COLUMNS says of the terminal."""
    told = columns(sys.stderr)
    with suppress(AttributeError, OSError, ValueError):  # hosts whose stderr is no file
        told = min(told, os.get_terminal_size(sys.stderr.fileno()).columns or told)
    return max(told - 1, 1)


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _write(text: str) -> None:
    with suppress(OSError):  # of a closed terminal
        sys.stderr.write(text)
        sys.stderr.flush()
