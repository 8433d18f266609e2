"""Writes killed at each of their calls that change files, and what they leave behind.

A child runs them.  In it, the call of a given number among those of `os` that change a folder or
a file ends the process, as `kill -9` does, before or after it is made.  No process that it started
outlives it.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gradtool.io import folders, valid

CALLS = ("fsync", "link", "mkdir", "rename", "replace", "rmdir", "unlink", "chmod", "ftruncate")
Folder = dict[str, bytes]


def content(folder: Path) -> Folder:
    """What is in a folder, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def visible(found: Folder) -> Folder:
    """What is not hidden in a folder that the next write removes."""
    return {name: data for name, data in found.items() if not name.startswith(".gradtool-")}


def states(
    folder: Path, before: Path, action: Callable[[], object], *, limit: int = 400
) -> Iterator[tuple[str, Folder, Folder]]:
    """Run an action in copies of a folder, killed at each of its calls, then unhindered.

    Yields when it was killed, what that left behind, and what the action run again makes of it.
    """
    for number in range(1, limit):
        for after in (False, True):
            refill(folder, before)
            killed = _run(folder, action, number, after=after)
            left = content(folder)
            if not killed:
                yield "unhindered", left, left
                return
            _finish(folder, action)
            yield f"{'after' if after else 'before'} call {number}", left, content(folder)
    raise AssertionError(f"more than {limit} calls")


def result(folder: Path, before: Path, action: Callable[[], object]) -> Folder:
    """What an action makes of a copy of a folder."""
    refill(folder, before)
    _finish(folder, action)
    return content(folder)


def _finish(folder: Path, action: Callable[[], object]) -> None:
    """Run an action to its end, in this process. It must not fail."""
    silent = io.StringIO()
    with (
        chdir(folder), redirect_stdout(silent), redirect_stderr(silent),
        patch.object(valid, "is_installed", _no_onnxruntime),
    ):  # fmt: skip
        assert not action()


def _no_onnxruntime() -> bool:
    """What it says of a file changes none."""
    return False


def _run(folder: Path, action: Callable[[], object], number: int, *, after: bool) -> bool:
    """Run an action in a process that dies at a call; whether it did. It must not fail."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            os.chdir(folder)
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            _die_at(number, after=after)
            code = int(bool(action()))
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert _is_empty(child), "what it started lives on"
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _is_empty(group: int) -> bool:
    """Whether all processes of a group end within some seconds; if not, they are ended."""
    for _ in range(2000):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    os.killpg(group, signal.SIGKILL)
    return False


def _die_at(number: int, *, after: bool) -> None:
    count = 0

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == number and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return call(*arguments, **options)
            finally:
                if after and count == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        return wrapped

    for name in CALLS:
        setattr(os, name, dying(getattr(os, name)))
    folders._exchange = dying(folders._exchange)
    valid.is_installed = _no_onnxruntime


def refill(folder: Path, source: Path) -> None:
    """Make a folder a copy of another one."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)


def is_supported() -> bool:
    """Whether processes can be forked and killed here."""
    return hasattr(os, "fork") and sys.platform != "darwin"
