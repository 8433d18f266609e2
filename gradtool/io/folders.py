"""A folder, or several files of one, replaced at once, by another folder in its place."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from gradtool.errors import SystemErrors, UsageError
from gradtool.io import atomic
from gradtool.io.staging import alone, staging

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
T = TypeVar("T")


def target(path: str | os.PathLike[str], *, force: bool) -> Path:
    """The real folder to make or replace, links followed.

    Raises:
        UsageError: it is a file, holds something and `force` is not given, or cannot be written.
    """
    given = Path(path)
    try:
        real = given.resolve()
        exists = os.path.lexists(given)
        if exists and not real.is_dir():
            raise UsageError(f"{given}: is no folder; name another one")
        if exists and not force and any(real.iterdir()):
            raise UsageError(f"{given} exists; pass --force to overwrite")
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{given}: cannot be written: {reason}") from error
    if not real.parent.is_dir():
        raise UsageError(f"{given}: there is no folder {str(real.parent)!r}")
    if not os.access(real.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{given}: the folder it is in is read-only")
    return real


def put(folder: Path, fill: Callable[[Path], T], owns: Callable[[str], bool]) -> T:
    """Make a folder whole or not at all; returns the result of `fill`, called with its place.

    Of what is in the folder already, all stays that `fill` does not make and whose name is not one
    that the caller `owns`.

    Raises:
        UsageError: the system refused, and why.
    """
    with SystemErrors(folder, "cannot be written"), staging(folder.parent) as stage:
        made = stage / folder.name
        made.mkdir()
        result = fill(made)
        for each in sorted(folder.iterdir()) if folder.is_dir() else ():
            if not owns(each.name) and not (made / each.name).exists():
                _link(each, made / each.name)
        _sync(made)
        with alone(folder.parent):
            if not _put(made, folder):
                folder.rename(stage / "before")
                made.rename(folder)
        atomic.sync_folder(folder.parent)
        return result


def _link(there: Path, here: Path) -> None:
    if there.is_dir() and not there.is_symlink():
        shutil.copytree(there, here, symlinks=True, copy_function=os.link)
    else:
        os.link(there, here, follow_symlinks=False)


def _sync(folder: Path) -> None:
    """Sync all files of a folder to the disk."""
    for each in sorted(folder.rglob("*")):
        if each.is_file() and not each.is_symlink():
            with each.open("rb") as file:
                os.fsync(file.fileno())
        elif each.is_dir():
            atomic.sync_folder(each)
    atomic.sync_folder(folder)


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, made if there is none: all or none, whenever it is looked at.

    Where the system cannot exchange two folders, each file by itself is the old or the new one.

    Raises:
        UsageError: the system refused, and why.
    """
    if folder.exists():
        _make(folder)
        for name in files:
            atomic.target(folder / name, force=True, own=True)
    single = len(files) == 1 and folder.is_dir()
    if single or not _replaced(folder.resolve(), files):
        _make(folder)
        places = {atomic.target(folder / n, force=True, own=True): files[n] for n in files}
        atomic.write([_output(path, data) for path, data in places.items()])


def _make(folder: Path) -> None:
    with SystemErrors(folder, "cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)


def _replaced(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Replace a folder by one with the files, and all its other ones."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with staging(folder.parent) as stage:
            made = stage / folder.name
            if folder.is_dir():
                shutil.copytree(folder, made, symlinks=True, copy_function=os.link)
            else:
                made.mkdir()
            for name, data in files.items():
                fresh = made / f"{name}.new"
                atomic.fill(fresh, _output(made / name, data))
                fresh.replace(made / name)
            atomic.sync_folder(made)
            with alone(folder.parent):
                done = _put(made, folder)
            atomic.sync_folder(folder.parent)
            return done
    except OSError:
        return False


def _output(path: Path, data: bytes) -> atomic.Output:
    return atomic.Output(path, lambda file: file.write(data))


def _put(made: Path, folder: Path) -> bool:
    if not folder.exists():
        made.rename(folder)
        return True
    return _exchange(made, folder)


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change places at once; whether the system can."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)
