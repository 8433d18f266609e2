"""Hidden folders for preparing files, beside their final place.

A writer holds a lock on its own, which ends with it: one that nobody holds was left behind by a
process that was killed, and the next one that writes there removes it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be removed
    fcntl = None  # type: ignore[assignment]

PREFIX = ".gradtool-"


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A new folder inside `folder`, removed in the end with all its remaining files.

    Raises:
        OSError: it cannot be made.
    """
    sweep(folder)
    made, held = _new(folder)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        _release(held)


def sweep(folder: Path) -> None:
    """Remove the remains of dead writers from a folder."""
    for left in sorted(folder.glob(f"{PREFIX}*")):
        held = None if left.is_symlink() else _lock(left, wait=False)
        if held is not None:
            shutil.rmtree(left, ignore_errors=True)
            _release(held)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock out other writers of the folder meanwhile, if the system has locks."""
    held = _lock(folder, wait=True)
    try:
        yield
    finally:
        _release(held)


def _new(folder: Path) -> tuple[Path, int | None]:
    while True:
        made = folder / f"{PREFIX}{secrets.token_hex(6)}"
        made.mkdir(mode=0o700)
        held = _lock(made, wait=True)
        if made.is_dir():  # nobody took it for left behind before it was held
            return made, held
        _release(held)


def _lock(folder: Path, *, wait: bool) -> int | None:
    """An open descriptor with the lock; None if it is taken, or cannot be had."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _release(descriptor: int | None) -> None:
    if descriptor is not None:
        with suppress(OSError):
            os.close(descriptor)
