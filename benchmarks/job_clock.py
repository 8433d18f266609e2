"""What a side of a job measures of itself: processor seconds of steps, and the process's peak.

`--callback job_clock:Clock` is this in `gradtool train`; PyTorch's side asks it as well.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

from gradtool.training.callbacks import Watcher

FIRST = 5  # steps that are not counted


class Clock(Watcher):
    """Writes what it has measured into the file that `JOB_CLOCK` names."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def stepped(self, *_: Any) -> None:
        """A step is done."""
        self._times.append(time.process_time())

    def ended(self) -> None:
        """Training is over."""
        steps = [b - a for a, b in zip(self._times[FIRST:], self._times[FIRST + 1 :], strict=False)]
        found = {"step": sum(steps) / len(steps), "peak": peak()}
        Path(os.environ["JOB_CLOCK"]).write_text(json.dumps(found))


class Anonymous:
    """High-water marks of anonymous memory and of mapped `files`, seen 100 times a second."""

    def __init__(self) -> None:
        self._most, self.files, self._ended = 0, 0, Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self._look()

    def _look(self) -> None:
        self._most = max(self._most, _status("RssAnon"))
        self.files = max(self.files, _status("RssFile"))

    def stop(self) -> int:
        """The mark, in bytes; nothing is looked at from here on."""
        self._ended.set()
        self._thread.join()
        self._look()
        return self._most


class Mark(Clock):
    """The same of the least step by the clock on the wall, and of anonymous memory."""

    def __init__(self) -> None:
        super().__init__()
        self._memory = Anonymous()

    def begun(self, *_: Any) -> None:
        """The first step is next."""
        self._times.append(time.perf_counter())

    def stepped(self, *_: Any) -> None:
        """A step is done."""
        self._times.append(time.perf_counter())

    def ended(self) -> None:
        """Training is over."""
        steps = [b - a for a, b in zip(self._times, self._times[1:], strict=False)]
        found = {"step": min(steps), "anonymous": self._memory.stop(), "mapped": self._memory.files}
        Path(os.environ["JOB_CLOCK"]).write_text(json.dumps(found))


def peak() -> int:
    """The most bytes that this process has held."""
    return _status("VmHWM")


def _status(field: str) -> int:
    """A field of the process's status, in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])
