"""The signals that ask a process, or all ranks, to end."""

from __future__ import annotations

import signal

# Ctrl-C, the signals of a system shutting down, and of a terminal being closed.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


def heard() -> list[int]:
    """The signals not ignored, as `nohup` makes one."""
    known = (getattr(signal, name) for name in _NAMES if hasattr(signal, name))
    return [number for number in known if signal.getsignal(number) != signal.SIG_IGN]
