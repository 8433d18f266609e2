"""The two streams: results on stdout, everything else on stderr.

On a terminal, a line is as wide as that is. Elsewhere a line is as long as it needs to be, so that
`grep` and a file see whole numbers.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal, TextIO

from gradtool.text.names import carries

if TYPE_CHECKING:
    from rich.console import Console

Color = Literal["auto", "always", "never"]

DRAWING = "…─│└•▁▂▃▄▅▆▇█"
UNBOUNDED = 100_000  # columns: so many that rich leaves lines alone
USUAL = 80  # columns of a terminal that does not tell
HEIGHT = 25  # lines: rich asks the terminal for both sizes unless both are given


def stdout_console(color: Color = "auto") -> Console:
    """The console of results."""
    return _console(sys.stdout, color)


def stderr_console(color: Color = "auto") -> Console:
    """The console of choices, warnings, errors and progress."""
    return _console(sys.stderr, color)


def draws(console: Console) -> bool:
    """Whether the console's encoding has our rules, blocks and `…`."""
    return carries(console.encoding, DRAWING)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody looks at `stream`, which is None or closed in some hosts."""
    return stream is not None and not stream.closed and stream.isatty()


def columns(stream: TextIO | None) -> int:
    """The width of `stream` if it is a terminal, else more than any line has.

    COLUMNS says it if set; a terminal of unknown width is as wide as they once were.
    """
    if not is_terminal(stream):
        return UNBOUNDED
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return USUAL


def wants_color(color: Color, stream: TextIO | None) -> bool:
    """Whether to write colours: the flag, then NO_COLOR, FORCE_COLOR, TERM, then the terminal.

    Source: no-color.org and force-color.org: set and not empty. `FORCE_COLOR=0` does not force.
    """
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal(stream) and not is_dumb()


def is_dumb() -> bool:
    """Whether TERM names a terminal without escape sequences."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def _console(stream: TextIO, color: Color) -> Console:
    from rich.console import Console

    terminal = is_terminal(stream)
    _never_fail(stream)
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system="standard" if wants_color(color, stream) else None,
        no_color=False,
        width=columns(stream),
        height=HEIGHT,
        markup=False,
        highlight=False,
        emoji=False,
    )


def _never_fail(stream: TextIO) -> None:
    r"""Have characters outside the stream's encoding written as `\u2026` instead of raising."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
