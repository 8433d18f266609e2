"""Files named by gradtool, in a folder named by the user.

Links on the way to the folder are the user's and are followed.  The last part of the path is ours:
a link, a pipe or a folder that somebody put there is neither read nor written to.  Errors are of
the system: their `strerror` tells the obstacle in place of a file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from gradtool.errors import SystemErrors

LINK = "it is a link, which is not followed: put a file in its place"
NO_FILE = "it is not a regular file"
SHARED = "it has another name (a hard link): put a copy in its place"
# A pipe is opened without waiting for its other end, so that it can be refused.
_PLAIN = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_OWN = _PLAIN | getattr(os, "O_NOFOLLOW", 0)
_AT_ONCE = 1 << 20  # bytes


def opened(path: Path, *, own: bool = True) -> BufferedReader:
    """A regular file to read, through no link if its name is our `own`.

    Raises:
        OSError: there is none, or something else in its place.
    """
    return os.fdopen(_descriptor(path, os.O_RDONLY, own=own), "rb")


def holds(file: BinaryIO, part: bytes) -> bool:
    """Whether an open file contains some bytes from its position on; read a piece at a time."""
    held = b""
    while piece := file.read(_AT_ONCE):
        held += piece
        if part in held:
            return True
        held = held[max(len(held) - len(part) + 1, 0) :]
    return False


def digest(path: Path, *, own: bool = False) -> str:
    """The SHA-256 of a file, its identity. Raises UsageError if it cannot be read."""
    with SystemErrors(path), opened(path, own=own) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def appended(path: Path, size: int | None = None, *, own: bool = True) -> BinaryIO:
    """A regular file with no other name to add to, cut to `size` bytes; made where there is none.

    Raises:
        OSError: there is something else in its place, or it cannot be written.
    """
    found = _descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, own=own)
    with ExitStack() as failing:
        failing.callback(os.close, found)
        status = os.fstat(found)
        if status.st_nlink > 1:
            raise OSError(errno.EMLINK, SHARED, str(path))
        if size is not None and size < status.st_size:
            os.ftruncate(found, size)
        failing.pop_all()
    return os.fdopen(found, "ab")


def made(path: Path, mode: int = 0o777) -> Path:
    """A folder of a name of ours, made if there is none, through no link.

    Raises:
        OSError: there is something else in its place, or it cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode)
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link, which is not followed", str(path))
    if not path.is_dir():
        raise OSError(errno.ENOTDIR, "it is not a folder", str(path))
    return path


def _descriptor(path: Path, flags: int, *, own: bool) -> int:
    """An open regular file, relative to a handle of its folder if the system has those."""
    with _handle(path.parent) as folder:
        name = path.name if folder is not None else str(path)
        with suppress(FileNotFoundError):
            # Looked at first: to open a device may do something, and not all have O_NOFOLLOW.
            _require_plain(os.stat(name, dir_fd=folder, follow_symlinks=not own), path)
        found = os.open(name, flags | (_OWN if own else _PLAIN), 0o666, dir_fd=folder)
    with ExitStack() as failing:
        failing.callback(os.close, found)
        _require_plain(os.fstat(found), path)
        failing.pop_all()
    return found


def _require_plain(status: os.stat_result, path: Path) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, LINK, str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, NO_FILE, str(path))


@contextmanager
def _handle(folder: Path) -> Iterator[int | None]:
    if os.open not in os.supports_dir_fd:
        yield None
        return
    found = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        yield found
    finally:
        os.close(found)
