"""Files that appear whole or not at all: written beside their place, then renamed into it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gradtool.errors import UsageError

MODELS = (".onnx", ".onnxtxt")


@dataclass(frozen=True)
class Output:
    """A file to write, and what writes its bytes."""

    path: Path
    fill: Callable[[BinaryIO], object]


def target(path: str | os.PathLike[str], *, force: bool) -> Path:
    """The real path to write, links followed.

    Raises:
        UsageError: it is a folder, exists without `force`, or its folder cannot be written.
    """
    given = Path(path)
    try:
        real = given.resolve()
        exists = os.path.lexists(given)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"{given}: cannot be written: {error}") from error
    if real.is_dir():
        raise UsageError(f"{given}: is a folder; name a file in it")
    if not real.parent.is_dir():
        raise UsageError(f"{given}: there is no folder {str(real.parent)!r}")
    if exists and not force:
        raise UsageError(f"{given} exists; pass --force to overwrite")
    if exists and real.exists() and not real.is_file():
        raise UsageError(f"{given}: is not a regular file")
    if not os.access(real.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{given}: its folder is read-only")
    return real


def require_targets(paths: Mapping[str, str | os.PathLike[str]], *, force: bool) -> None:
    """Refuse files that cannot be written or shall hold a model, by the flag that names each.

    What is written there is no model: one that is there already would be lost.

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


def write(outputs: Sequence[Output]) -> None:
    """Write all outputs to the disk, then rename them into place in the order given.

    If anything fails before the first rename, nothing has changed; if a later rename fails, the
    earlier ones are taken back. Nothing else is left behind.

    Raises:
        UsageError: the system refused, and why.
    """
    temporary = {output.path: _beside(output.path, "tmp") for output in outputs}
    try:
        for output in outputs:
            _fill(temporary[output.path], output)
        _rename(temporary)
    except OSError as error:
        where = outputs[-1].path
        raise UsageError(f"{where}: cannot be written: {error.strerror or error}") from error
    finally:
        _remove(temporary.values())


def _beside(path: Path, what: str) -> Path:
    """A new name in the same folder, short enough whatever the path's own."""
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.{what}")


def _fill(path: Path, output: Output) -> None:
    with path.open("xb") as file:
        output.fill(file)
        file.flush()
        os.fsync(file.fileno())
    if output.path.exists():
        path.chmod(output.path.stat().st_mode & 0o7777)


def _rename(temporary: dict[Path, Path]) -> None:
    backups: dict[Path, Path | None] = {}
    try:
        for path, written in temporary.items():
            if len(temporary) > 1:
                backups[path] = _backup(path)
            written.replace(path)
    except BaseException:
        for path, backup in backups.items():
            if backup is not None:
                backup.replace(path)
            elif not temporary[path].exists():
                path.unlink(missing_ok=True)
        raise
    finally:
        _remove(backup for backup in backups.values() if backup is not None)
    for folder in {path.parent: None for path in temporary}:
        _sync_folder(folder)


def _backup(path: Path) -> Path | None:
    """A second name for what is there now, None where there is nothing or links are not had."""
    if not path.exists():
        return None
    backup = _beside(path, "old")
    backup.hardlink_to(path)
    return backup


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the renames last. Not every system lets a folder be opened."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
