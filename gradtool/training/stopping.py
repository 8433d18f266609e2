"""Signals that ask a training to end: the step that runs is finished, and a checkpoint written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradtool.errors import Interrupted
from gradtool.ranks.started import heard
from gradtool.training.callbacks import Watcher

_listens: Asked | None = None


class Asked(Watcher):
    """Who asks for the end is heard here; `number` is the first signal."""

    def __init__(self) -> None:
        self.number: int | None = None

    def stops(self) -> bool:
        """Whether there was a signal."""
        return self.number is not None

    def hear(self, number: int, _frame: Any = None) -> None:
        """Note a signal; the second one ends everything at once.

        Raises:
            Interrupted: it is the second one.
        """
        if self.number is not None:
            raise Interrupted(number)
        self.number = number

    def pass_on(self) -> None:
        """Pass a caught signal on, unless somebody still listens."""
        if self.number is not None and _listens is None:
            signal.raise_signal(self.number)


@contextmanager
def listening() -> Iterator[Asked]:
    """Hear of signals in place of who did before; within another such block, and as that one does.

    Only the main thread of a process hears of any, and none of one that is ignored.
    """
    global _listens  # noqa: PLW0603 - a process has one set of handlers
    if _listens is not None or threading.current_thread() is not threading.main_thread():
        yield _listens or Asked()
        return
    _listens = asked = Asked()
    before = {number: signal.getsignal(number) for number in heard()}
    try:
        for number in before:
            signal.signal(number, asked.hear)
        yield asked
    finally:
        _listens = None
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
