"""Confinement of a configuration's files to its repository, wherever links lead.

A configuration is somebody else's as often as not: its files are opened before anybody has read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.check.cases import Case
    from gradtool.check.config.settings import Config

FLAG = "--allow-outside"


def root_of(folder: Path) -> Path:
    """The root of a folder's repository; the real folder if there is none."""
    real = folder.resolve()
    return next((each for each in (real, *real.parents) if (each / ".git").exists()), real)


def require(config: Config, *, found: bool) -> None:
    """Refuse a configuration that names files outside its repository.

    A configuration `found`, not named, has to lie there itself.

    Raises:
        UsageError: naming the file.
    """
    root = root_of(config.folder)
    if found:
        require_inside(config.path, root, str(config.path))
    require_inside(config.baseline, root, f"{config.path}: check: baseline")
    for case in config.cases:
        require_case(case, root, f"{config.path}: ")


def require_case(case: Case, root: Path, where: str = "") -> None:
    """Refuse a case of files outside a folder.

    Raises:
        UsageError: naming the file.
    """
    for what, path in files_of(case):
        require_inside(path, root, f"{where}case {case.name!r}: {what}")


def files_of(case: Case) -> Iterator[tuple[str, Path]]:
    """The files of a case, each with its role."""
    yield f"model {case.model!r}", case.path
    for name in case.files:
        yield f"file {name!r}", case.folder / name


def require_inside(path: Path, root: Path, where: str) -> None:
    """Refuse a path out of a folder, itself or the folder it is in.

    So is a pipe, which would be waited for without end.

    Raises:
        UsageError: naming the flag that allows it.
    """
    try:
        places = path.parent.resolve(), path.resolve()
        is_odd = path.exists() and not path.is_file() and not path.is_dir()
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{where}: cannot be looked up: {reason}") from error
    if not all(place.is_relative_to(root) for place in places):
        bound = "repository" if (root / ".git").exists() else "folder of the configuration"
        raise UsageError(
            f"{where} lies outside the {bound}: {FLAG} takes it all the same, for a configuration "
            "that you trust"
        )
    if is_odd:
        raise UsageError(f"{where} is not a regular file")
