"""One line on a terminal that is written over as things go on."""

from __future__ import annotations

import shutil
import sys
import time

from gradtool.reports.console import is_dumb, is_terminal
from gradtool.text.names import escape, fit, shorten

EVERY = 0.1  # seconds between two versions


class Line:
    """The last line of stderr, where that is a terminal; nothing anywhere else."""

    def __init__(self) -> None:
        self.shows = is_terminal(sys.stderr) and not is_dumb()
        self._next = 0.0
        self._is_there = False

    def is_due(self) -> bool:
        """Whether it is time for another version."""
        return self.shows and time.monotonic() >= self._next

    def show(self, text: str) -> None:
        """Write over what is there."""
        if not self.shows:
            return
        width = shutil.get_terminal_size().columns - 1
        encoding = getattr(sys.stderr, "encoding", None) or "ascii"
        sys.stderr.write("\r\x1b[K" + shorten(fit(escape(text), encoding), width, ellipsis="..."))
        sys.stderr.flush()
        self._next, self._is_there = time.monotonic() + EVERY, True

    def clear(self) -> None:
        """Take it away, so that another line can be written."""
        if self._is_there:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_there, self._next = False, 0.0
