"""Files of another git revision, laid out in a folder as they lie in the repository."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from gradtool.check.cache import locations
from gradtool.check.cases import Case
from gradtool.errors import UsageError
from gradtool.io import lfs

_SECONDS = 600


class Revision:
    """A revision of a folder's repository, whose files are written to `into`."""

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
        if where.failed:
            raise UsageError(
                f"--base {ref}: {str(folder)!r} lies in no git repository that git will use: "
                f"{where.reason}"
            )
        self.root = Path(os.fsdecode(where.printed.rstrip(b"\n"))).resolve()
        found = _git(
            folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )
        if found.failed:
            raise UsageError(f"--base {ref}: the repository has no such revision{self._depth()}")
        self.commit = found.printed.decode("ascii").strip()

    def _depth(self) -> str:
        """The advice for a clone with a part of the history."""
        shallow = _git(self.root, "rev-parse", "--is-shallow-repository")
        return ": this clone is shallow, so fetch it first" if b"true" in shallow.printed else ""

    def case(self, case: Case, configuration: Path | None = None) -> Case | None:
        """The case with the files of the revision; None where the model is not in it.

        Where it is not under today's path, the case of the same name in the `configuration` of the
        revision says which path it had.

        Raises:
            UsageError: a file lies outside the repository, cannot be had, or only as a pointer.
        """
        model = self._extract(case.path)
        if model is None:
            before = self._before(case, configuration) if configuration is not None else None
            return None if before is None or before == case else self.case(before)
        if lfs.is_pointer_file(model):
            raise UsageError(f"{case.model}: is a Git LFS pointer: fetch it with git lfs first")
        for location in locations(model):
            self._extract(case.path.parent / location, is_data=True)
        for path in case.files:
            self._extract(case.folder / path)
        here = self.into / self._inside(case.folder)
        return replace(case, folder=here, model=os.path.relpath(model, here))

    def _before(self, case: Case, configuration: Path) -> Case | None:
        """The case of today with its model's former path; None if there was no such case."""
        from gradtool.check.config import load

        path = self._extract(configuration)
        if path is None:
            return None
        try:
            cases = load(path).cases
        except UsageError as error:
            raise UsageError(str(error).removeprefix(f"{self.into}{os.sep}")) from error
        earlier = next((each for each in cases if each.group == case.group), None)
        return None if earlier is None else replace(case, model=earlier.model)

    def _inside(self, path: Path) -> Path:
        """The path from the root of the repository."""
        real = Path(os.path.normpath(path.resolve() if path.exists() else path.absolute()))
        try:
            return real.relative_to(self.root)
        except ValueError as error:
            raise UsageError(f"{path}: lies outside the repository, so --base has none") from error

    def _extract(self, path: Path, *, is_data: bool = False) -> Path | None:
        """A file as it is in the revision; None where it is not.

        Filters run as in a checkout, so that files in large file storage are had.  Data that
        cannot be had is left out: planning needs no weights.
        """
        inside = self._inside(path)
        target = self.into / inside
        if target.exists():
            return target
        name = inside.as_posix()
        listed = _git(self.root, "ls-tree", "--full-tree", "--name-only", self.commit, "--", name)
        if not listed.printed:
            return None
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            blob = f"{self.commit}:{name}"
            found = _git(self.root, "cat-file", "--filters", blob, into=file)
        if found.failed:
            target.unlink()
            if is_data:
                return None
            raise UsageError(f"{name}: cannot be had from git: {found.reason}")
        return target


@dataclass(frozen=True)
class _Done:
    """The output of git, and its last words if it failed."""

    printed: bytes
    failed: bool
    reason: str


def _git(folder: Path, *arguments: str, into: IO[bytes] | None = None) -> _Done:
    """Run git; its output goes `into` a file if one is given.

    Raises:
        UsageError: there is no git.
    """
    command = ("git", "-C", str(folder), *arguments)
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command, and no shell
            command,
            stdout=into or subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
            timeout=_SECONDS,
        )
    except FileNotFoundError as error:
        raise UsageError("--base needs git, and there is none here") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"--base: git cannot be run: {error}") from error
    failed = done.returncode != 0
    return _Done(done.stdout or b"", failed, _reason(done.stderr) if failed else "")


def _reason(told: bytes) -> str:
    """The first complaint of git, in one line."""
    lines = [line for line in told.decode("utf-8", "replace").splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal: ", "error: "))] or lines
    return fatal[0].partition(": ")[2] or fatal[0] if fatal else "git does not say why"
