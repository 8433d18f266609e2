"""Command lines run in a process of their own, within limits of time and memory.

The process is a fork of this one. Once the command has run here (`warm`), everything is imported
already: what the fork takes is what the command takes.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradtool import cli

MOST_SECONDS = 20
MOST_BYTES = 2**30
PATIENCE = 5  # how much longer a command may take on a busy machine
BUG = 70
NO_MEMORY = 4
_KIB = 1024


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, or the number of a signal below zero.

    `seconds` are those of the processor: a busy machine is no defect. `bytes` is what it took
    beyond what was there when it began.
    """

    code: int
    seconds: float
    bytes: int
    out: str
    err: str

    def defect(self, held: Callable[[], int] = int) -> str:
        """What no file may cause; empty if nothing of it happened.

        A step may hold its values, of `held` bytes, a few times: gradients and workspaces.
        """
        if (
            self.code in (-signal.SIGALRM, -signal.SIGXCPU, -signal.SIGKILL)
            or self.seconds > MOST_SECONDS
        ):
            return f"took {self.seconds:.1f} s"
        if self.code < 0:
            return f"died of signal {-self.code}"
        if self.bytes > MOST_BYTES and self.bytes > MOST_BYTES + 4 * held():
            return f"took {self.bytes / 2**20:.0f} MiB"
        if self.code == BUG:
            return f"exit {self.code}: {self.err.strip()[-300:]}"
        if self.code == NO_MEMORY and "out of memory" in self.err:
            return f"ran out of memory: {self.err.strip()[-300:]}"
        return ""


def warm(commands: Iterable[Sequence[str]], folder: Path) -> None:
    """Run commands in this process, on what lies in `folder`, for what they import."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            for command in commands:
                cli.run(list(command))
    finally:
        os.chdir(before)


def ended(
    arguments: Sequence[object],
    folder: Path,
    *,
    seconds: int = MOST_SECONDS,
    most_bytes: int = 2 * MOST_BYTES,
) -> Ended:
    """Run one command line with `folder` as the working folder."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        before = _resident()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads that have no part here
            child = os.fork()
        if child == 0:
            _become(arguments, folder, (out.fileno(), err.fileno()), seconds + 1, most_bytes)
        _, status, usage = os.wait4(child, 0)
        out.seek(0)
        err.seek(0)
        return Ended(
            code=os.waitstatus_to_exitcode(status),
            seconds=usage.ru_utime + usage.ru_stime,
            bytes=usage.ru_maxrss * _KIB - before,
            out=out.read().decode("utf-8", "replace"),
            err=err.read().decode("utf-8", "replace"),
        )


def _become(
    arguments: Sequence[object], folder: Path, streams: tuple[int, int], seconds: int, most: int
) -> None:
    code = 99
    try:
        for number, stream in enumerate(streams, 1):
            os.dup2(stream, number)
        os.chdir(folder)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE * seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        limit = _mapped() + most
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = _run(arguments)
    finally:
        os._exit(code)


def _run(arguments: Sequence[object]) -> int:
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    code = cli.run([str(argument) for argument in arguments])
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _resident() -> int:
    return _pages(1)


def _mapped() -> int:
    return _pages(0)


def _pages(field: int) -> int:
    return int(Path("/proc/self/statm").read_text().split()[field]) * resource.getpagesize()
