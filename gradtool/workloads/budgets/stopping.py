"""An end that the clock sets: the work in a block stops once its seconds are over."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SHARE = 0.9  # of the seconds, after which nothing new is begun: the rest is for packing
_LATER = 1e-3  # seconds until the next attempt to end a block that cannot be ended now


class TimeIsUp(BaseException):
    """Raised in the block; no search takes it for an answer of its own."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeIsUp in the block after so many seconds, where the system can interrupt it.

    It can in the main thread of a process on POSIX systems; elsewhere the block runs to its end.
    """
    able = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if seconds is None or not able:
        yield
        return
    before = signal.signal(signal.SIGALRM, _raise)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def deadline(seconds: float | None) -> Callable[[], bool]:
    """Whether it is time to end with what is there, a little before the seconds are over.

    They begin now; without any, it never is.
    """
    end = None if seconds is None else time.perf_counter() + _SHARE * seconds
    return lambda: end is not None and time.perf_counter() > end


def _raise(_number: int, frame: FrameType | None) -> None:
    if any(map(_swallows, _stack(frame))):
        signal.setitimer(signal.ITIMER_REAL, _LATER)
    else:
        raise TimeIsUp


def _swallows(frame: FrameType) -> bool:
    """Whether Python prints what this call raises and goes on: it is made while it cleans up."""
    return (
        frame.f_code.co_name == "__del__"
        or frame.f_globals.get("__name__") in {"weakref", "_weakrefset"}
        or any(frame.f_code is getattr(call, "__code__", None) for call in gc.callbacks)
    )


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """A call and those it was made by, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back
