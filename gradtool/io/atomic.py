"""Atomic writes, whole files or nothing: written beside their place, then renamed into it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gradtool.errors import SystemErrors, UsageError
from gradtool.io.staging import alone, staging
from gradtool.text.units import format_bytes

MODELS = (".onnx", ".onnxtxt")


@dataclass(frozen=True)
class Output:
    """A file to write, and the writer of its bytes."""

    path: Path
    fill: Callable[[BinaryIO], object]


def target(path: str | os.PathLike[str], *, force: bool, own: bool = False) -> Path:
    """The real path to write, links followed; not the last one where the name is our `own`.

    Anything but a folder in the place of such a file is replaced: a link, not its target.

    Raises:
        UsageError: it is a folder, exists without `force`, or its folder cannot be written.
    """
    given = Path(path)
    try:
        real = given.parent.resolve() / given.name if own else given.resolve()
        exists = os.path.lexists(given)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"{given}: cannot be written: {error}") from error
    if real.is_dir() and not (own and real.is_symlink()):
        raise UsageError(f"{given}: is a folder; name a file in it")
    if not real.parent.is_dir():
        raise UsageError(f"{given}: there is no folder {str(real.parent)!r}")
    if exists and not force:
        raise UsageError(f"{given} exists; pass --force to overwrite")
    if not own and exists and real.exists() and not real.is_file():
        raise UsageError(f"{given}: is not a regular file")
    if not os.access(real.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{given}: its folder is read-only")
    return real


def rehearse(sizes: Mapping[Path, int]) -> None:
    """Rehearse writing files of so many bytes to their places, and leave nothing.

    Raises:
        UsageError: a file of that name cannot be made there, or a disk has too little room.
    """
    needed: dict[int, int] = {}
    for path, size in sizes.items():
        place = target(path, force=True)
        with SystemErrors(path, "cannot be written"):
            with staging(place.parent) as stage:
                fill(stage / place.name, Output(place, lambda file: file.write(b"\0")))
            device = place.parent.stat().st_dev
            free = shutil.disk_usage(place.parent).free
        needed[device] = needed.get(device, 0) + size
        if needed[device] > free:
            raise UsageError(
                f"{path}: {format_bytes(needed[device])} are to be written there, its disk has "
                f"{format_bytes(free)}: make room, or name another folder"
            )


def require_targets(paths: Mapping[str, str | os.PathLike[str]], *, force: bool) -> None:
    """Refuse files that cannot be written or are named like a model, by their flags.

    These files are no models: one that is there already would be lost.

    Raises:
        UsageError: as `target`, or a model has such a name, or two flags name the same file.
    """
    found: dict[Path, str] = {}
    for flag, path in paths.items():
        if Path(path).suffix in MODELS:
            raise UsageError(f"{flag} {path}: that is the name of a model; name another file")
        real = target(path, force=force)
        if real in found:
            raise UsageError(f"{found[real]} and {flag} name the same file")
        found[real] = flag


def write(outputs: Sequence[Output], *, together: int = 1) -> None:
    """Write all outputs to the disk, then let them appear in the order given.

    If anything fails before the first appears, nothing has changed; if it fails later, those that
    appeared are taken back.  The last ones, so many, are written `together`: a process that is
    killed may leave the first of these alone, but never old beside new.

    Raises:
        UsageError: the system refused, and why.
    """
    where = outputs[-together].path if outputs else ""
    with SystemErrors(where, "cannot be written"), ExitStack() as stack:
        ready = _ready(outputs, stack)
        _appear(ready, ready[len(ready) - together + 1 :])


@dataclass(frozen=True)
class _Ready:
    """A written file, its final place, and the backup of the present one."""

    written: Path
    place: Path
    backup: Path


def _ready(outputs: Sequence[Output], stack: ExitStack) -> list[_Ready]:
    stages = {
        folder: stack.enter_context(staging(folder))
        for folder in dict.fromkeys(output.path.parent for output in outputs)
    }
    ready = []
    for number, output in enumerate(outputs):
        stage = stages[output.path.parent]
        each = _Ready(stage / f"{number}.new", output.path, stage / f"{number}.old")
        fill(each.written, output)
        ready.append(each)
    return ready


def fill(path: Path, output: Output) -> None:
    """Write an output to the disk at another path, with the present file's permissions."""
    with path.open("xb") as file:
        output.fill(file)
        file.flush()
        os.fsync(file.fileno())
    with suppress(FileNotFoundError):
        mode = output.path.lstat().st_mode
        if stat.S_ISREG(mode):
            path.chmod(stat.S_IMODE(mode))


def _appear(ready: Sequence[_Ready], bound: Sequence[_Ready]) -> None:
    """Rename the files into place; former files are kept until all are, if `bound` elsewhere."""
    with ExitStack() as stack:
        for folder in sorted({each.place.parent for each in ready}):
            stack.enter_context(alone(folder))
        there = [each for each in ready if os.path.lexists(each.place)] if len(ready) > 1 else []
        moved: list[_Ready] = []
        try:
            for each in reversed(there):
                _keep(each, away=each in bound)
            for each in ready:
                each.written.replace(each.place)
                moved.append(each)
                sync_folder(each.place.parent)
        except BaseException:
            for each in there:
                if os.path.lexists(each.backup):
                    each.backup.replace(each.place)
            for each in moved:
                if each not in there:
                    each.place.unlink(missing_ok=True)
            raise


def _keep(each: _Ready, *, away: bool) -> None:
    """Give the present file a second name, or only that one; links are not had everywhere."""
    if away:
        each.place.replace(each.backup)
        sync_folder(each.place.parent)
    else:
        with suppress(OSError):
            os.link(each.place, each.backup, follow_symlinks=False)


def sync_folder(folder: Path) -> None:
    """Make renames last. Not every system lets a folder be opened."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
