"""Commands on a pseudo-terminal of a width, and the screen that a person sees."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyte
from rich.cells import cell_len

ROWS = 400  # of the screen: no command here scrolls
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
UNSET = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "CI", "LC_ALL", "GITHUB_STEP_SUMMARY")


@dataclass(frozen=True)
class Seen:
    """What a command wrote to its terminal, in pieces, each with the width at that time."""

    code: int
    pieces: tuple[tuple[int, bytes], ...]

    @property
    def raw(self) -> bytes:
        return b"".join(data for _, data in self.pieces)

    def screen(self, until: int | None = None) -> pyte.Screen:
        """The screen, at the end or after some pieces."""
        width = self.pieces[0][0] if self.pieces else 80
        screen = pyte.Screen(width, ROWS)
        stream = pyte.ByteStream(screen)
        for columns, data in self.pieces[:until]:
            if columns != screen.columns:
                screen.resize(ROWS, columns)
            stream.feed(data)
        return screen

    @property
    def lines(self) -> list[str]:
        """The lines of the last screen, without blank ones below."""
        return "\n".join(line.rstrip() for line in self.screen().display).rstrip().split("\n")

    def written(self) -> list[tuple[int, str]]:
        """All that stood in a line, also what was written over, with the width at that time."""
        found = []
        for columns, data in self.pieces:
            text = ESCAPES.sub(b"", data).decode("utf-8", "replace")
            found += [(columns, part) for part in re.split(r"[\r\n]+", text) if part]
        return found

    def too_wide(self) -> list[str]:
        """Lines that a terminal had to wrap."""
        return [text for columns, text in self.written() if cell_len(text) > columns]


def on_terminal(
    line: Sequence[object],
    columns: int,
    *,
    folder: Path,
    resizes: Sequence[tuple[int, int]] = (),
    rows: int = ROWS,
    environment: Mapping[str, str] | None = None,
) -> Seen:
    """A command of gradtool on a terminal that has other widths after so many pieces of output."""
    ours, theirs = os.openpty()
    _size(theirs, rows, columns)
    known = {name: value for name, value in os.environ.items() if name not in UNSET}
    path = os.pathsep.join(filter(None, sys.path))
    told = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": path}
    child = subprocess.Popen(
        [sys.executable, "-m", "gradtool", *map(str, line)],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, start_new_session=True,
        env={**known, **told, **(environment or {})},
    )  # fmt: skip
    pieces = []
    ahead = dict(resizes)
    while True:
        if len(pieces) in ahead:
            columns = ahead.pop(len(pieces))
            _size(theirs, rows, columns)
        if select.select([ours], [], [], 0.02)[0]:
            pieces.append((columns, os.read(ours, 1 << 16)))
        elif child.poll() is not None:
            break
    os.close(theirs)
    with contextlib.suppress(OSError):  # the end of a terminal that its program has left
        while data := os.read(ours, 1 << 16):
            pieces.append((columns, data))
    os.close(ours)
    return Seen(child.returncode, tuple(pieces))


def _size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
