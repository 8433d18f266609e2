"""Commands interrupted at each of their calls that change files, in a process of their own.

Calls of `os` and writes to files that Python opened are counted in the child; at one of them
something happens: the process dies, the system refuses, the disk is full from there on, or
somebody moves a folder away.
"""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kills import CALLS
from limited import Ended, ended

from gradtool.io import folders

ROOM = ("fsync", "ftruncate", "link", "mkdir", "open", "write")  # what a full disk refuses
MAKES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
AWAY = ".away"
Deed = Callable[[str, bool], None]  # given a call, and whether it is the one to interrupt


def dies(_call: str, here: bool) -> None:  # noqa: FBT001 - a callback
    if here:
        os.kill(os.getpid(), signal.SIGKILL)


def fails(_call: str, here: bool) -> None:  # noqa: FBT001 - a callback
    if here:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class Full:
    """A disk that has no room from a call on."""

    def __init__(self) -> None:
        self.is_full = False

    def __call__(self, call: str, here: bool) -> None:  # noqa: FBT001 - a callback
        self.is_full |= here
        if self.is_full and call in ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def loses(folder: str) -> Deed:
    """Move a folder away, if it is there."""
    rename = os.rename

    def lose(_call: str, here: bool) -> None:  # noqa: FBT001 - a callback
        if here and Path(folder).is_dir():
            rename(folder, f"{folder}{AWAY}")

    return lose


def interrupted(
    command: Sequence[str], folder: Path, number: int = 0, deed: Deed = fails
) -> tuple[Ended, int]:
    """Run a command, interrupted before its call of a number; how it ended, and its calls.

    The number of the calls is that of all where nothing is interrupted (0).
    """
    with mmap.mmap(-1, 8) as shared:
        parent = os.getpid()

        def called(name: str) -> None:
            if os.getpid() == parent:
                return
            (count,) = struct.unpack("q", shared[:])
            shared[:] = struct.pack("q", count + 1)
            deed(name, count + 1 == number)

        with hooked(called):
            found = ended(command, folder)
        return found, struct.unpack("q", shared[:])[0]


@contextmanager
def hooked(called: Callable[[str], None]) -> Iterator[None]:
    """Tell of each call by its name, before it is made."""
    real, exchange = os.open, folders._exchange
    made = _teller(called)

    def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def told(*arguments: Any, **options: Any) -> Any:
            called(name)
            return call(*arguments, **options)

        return told

    def opened(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & MAKES:
            called("open")
        return real(path, flags, *arguments, **options)

    def exchanged(one: Path, other: Path) -> bool:
        try:
            called("exchange")
        except OSError:
            return False
        return exchange(one, other)

    with (
        patch.multiple(os, open=opened, **{n: wrapped(n, getattr(os, n)) for n in CALLS}),
        patch.object(os, "supports_dir_fd", {*os.supports_dir_fd, opened}),
        patch.object(folders, "_exchange", exchanged),
        patch.object(io, "open", made), patch.object(builtins, "open", made),
    ):  # fmt: skip
        yield


def _teller(called: Callable[[str], None]) -> Callable[..., Any]:
    """An `open` of which each file of bytes tells before a write reaches the system."""
    real = io.open

    class Raw(io.FileIO):
        def write(self, data: Any) -> int:
            called("write")
            return super().write(data)

    def made(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not set(mode) & set("wxa+"):
            return real(file, mode, *arguments, **options)
        if not isinstance(file, int):
            called("open")
        if "b" not in mode or "+" in mode or arguments:
            return real(file, mode, *arguments, **options)
        return io.BufferedWriter(Raw(file, mode.replace("b", ""), **options))

    return made
