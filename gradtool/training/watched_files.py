"""Files that are read from as long as a training takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gradtool.errors import UsageError


@dataclass(frozen=True)
class Watched:
    """A file that is read from, as it was when it was opened."""

    path: Path
    bytes: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Watched:
        """A file as it is now."""
        found = path.stat()
        return cls(path, found.st_size, found.st_mtime_ns)

    def require_same(self) -> None:
        """Raise UsageError if the file is another one now."""
        try:
            now = Watched.of(self.path)
        except OSError as error:
            raise UsageError(f"{self.path}: is gone: {error.strerror}") from error
        if now != self:
            what = f"{self.bytes} bytes before, {now.bytes} now" if now.bytes != self.bytes else ""
            raise UsageError(
                f"{self.path}: has changed since training began{': ' if what else ''}{what}"
            )
