"""The signals that ask a process, or all ranks, to end."""

from __future__ import annotations

import signal

# Ctrl-C, what a system that shuts down sends, and what a terminal that is closed does.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


def heard() -> list[int]:
    """Those that are not ignored, as `nohup` has it of one."""
    known = (getattr(signal, name) for name in _NAMES if hasattr(signal, name))
    return [number for number in known if signal.getsignal(number) != signal.SIG_IGN]
