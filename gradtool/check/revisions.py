"""Files of another git revision, laid out in a folder as they lie in the repository."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import IO

from gradtool.check.cases import Case
from gradtool.check.data_files import locations
from gradtool.errors import GradtoolError, UsageError

_POINTER = b"version https://git-lfs.github.com/spec/"
_SECONDS = 600


class Revision:
    """A revision of the repository that a folder lies in, whose files are written to `into`."""

    def __init__(self, ref: str, folder: Path, into: Path) -> None:
        """Look the revision up.

        Raises:
            UsageError: there is no git, no repository or no such revision.
        """
        self.folder = folder
        self.into = into.resolve()
        if not ref or ref.startswith("-") or not ref.isprintable():
            raise UsageError(f"--base {ref!r}: is no name of a revision")
        where = _git(folder, "rev-parse", "--show-toplevel")
        if where is None:
            raise UsageError(f"--base {ref}: {str(folder)!r} lies in no git repository")
        self.root = Path(os.fsdecode(where.rstrip(b"\n"))).resolve()
        found = _git(
            folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )
        if found is None:
            raise UsageError(
                f"--base {ref}: the repository has no such revision; in a shallow clone, fetch it "
                "first"
            )
        self.commit = found.decode("ascii").strip()

    def case(self, case: Case) -> Case | None:
        """The case with the files of the revision; None where the model is not in it.

        Raises:
            GradtoolError: a file lies outside the repository or only as a pointer.
        """
        model = self._extract(case.path)
        if model is None:
            return None
        if _is_pointer(model):
            raise GradtoolError(f"{case.model}: is a Git LFS pointer at --base: fetch it first")
        for location in locations(model):
            self._extract(case.path.parent / location, is_data=True)
        for path in case.plan.files:
            self._extract(case.folder / path)
        here = self.into / self._inside(case.folder)
        return replace(case, folder=here, model=os.path.relpath(model, here))

    def _inside(self, path: Path) -> Path:
        """The path from the root of the repository."""
        real = Path(os.path.normpath(path.resolve() if path.exists() else path.absolute()))
        try:
            return real.relative_to(self.root)
        except ValueError as error:
            raise UsageError(f"{path}: lies outside the repository, so --base has none") from error

    def _extract(self, path: Path, *, is_data: bool = False) -> Path | None:
        """A file as it is in the revision; None where it is not.

        Filters run as in a checkout, so that files in large file storage are had.  Data of which
        there is only a pointer is left out: planning needs no weights.
        """
        inside = self._inside(path)
        target = self.into / inside
        if target.exists():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        blob = f"{self.commit}:{inside.as_posix()}"
        with target.open("wb") as file:
            found = _git(self.root, "cat-file", "--filters", blob, into=file) is not None
        if not found or (is_data and _is_pointer(target)):
            target.unlink()
            return None
        return target


def _is_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER


def _git(folder: Path, *arguments: str, into: IO[bytes] | None = None) -> bytes | None:
    """What git prints, unless that goes `into` a file; None if it fails.

    Raises:
        UsageError: there is no git.
    """
    command = ("git", "-C", str(folder), *arguments)
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command, and no shell
            command,
            stdout=into or subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_SECONDS,
        )
    except FileNotFoundError as error:
        raise UsageError("--base needs git, and there is none here") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"--base: git cannot be run: {error}") from error
    return (done.stdout or b"") if done.returncode == 0 else None
