"""The journal of a training: a JSON object a line, the same bytes for the same training."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from gradtool.errors import SystemErrors, UsageError
from gradtool.io import contained

NAME = "metrics.jsonl"
_PIECE = 1 << 20
_MOST_LINE = 1 << 20  # bytes: more is none of ours


def has_entries(path: Path) -> bool:
    """Whether a journal tells of any step."""
    return path.exists() and path.stat().st_size > 0


@dataclass(frozen=True)
class Mark:
    """How far a journal went: its bytes, and their hash; None where an old checkpoint has none."""

    bytes: int = 0
    sha256: str | None = None


class Journal:
    """A file of lines that is added to; what is not finished when a process dies is cut off."""

    def __init__(self, path: Path, mark: Mark | None = None) -> None:
        """Go on after a mark in what is there, or begin.

        Raises:
            UsageError: what is there is not what was written up to the mark, and stays as it is;
                or the file cannot be written.
        """
        self.path = path
        self._bytes = mark.bytes if mark is not None else 0
        self._writing = SystemErrors(path, "cannot be written")
        with self._writing:
            self._hashed = hashlib.sha256() if mark is None else self._held_against(mark)
            self._file = contained.appended(path, self._bytes)

    def _held_against(self, mark: Mark) -> hashlib._Hash:
        found, left = hashlib.sha256(), mark.bytes
        with contained.opened(self.path) if left else BytesIO() as file:
            while piece := file.read(min(left, _PIECE)):
                found.update(piece)
                left -= len(piece)
        why = (
            f"it has {mark.bytes - left} of the {mark.bytes} bytes"
            if left
            else "these are not the bytes"
        )
        if left or mark.sha256 not in (None, found.hexdigest()):
            raise UsageError(
                f"{self.path}: is damaged: {why} that the checkpoint knows of: put back what was "
                "there, or move it away, and a new one begins"
            )
        return found

    def write(self, entry: Mapping[str, Any]) -> None:
        """Add a line; numbers that are not finite are null."""
        line = json.dumps(_finite(entry), separators=(", ", ": "), allow_nan=False)
        data = f"{line}\n".encode()
        with self._writing:
            self._file.write(data)
        self._hashed.update(data)
        self._bytes += len(data)

    def settle(self) -> Mark:
        """Bring all lines to the disk; returns how far it goes.

        Raises:
            UsageError: the disk is full.
        """
        with self._writing:
            self._file.flush()
            os.fsync(self._file.fileno())
        return Mark(self._bytes, self._hashed.hexdigest())

    def close(self) -> None:
        """Write what is left."""
        with self._writing:
            self._file.close()


def _finite(entry: Any) -> Any:
    if isinstance(entry, Mapping):
        return {name: _finite(value) for name, value in entry.items()}
    return None if isinstance(entry, float) and not math.isfinite(entry) else entry


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a journal; a last line that is not finished is left out.

    Raises:
        UsageError: the file cannot be read, or another line is no object.
    """
    try:
        with SystemErrors(path), contained.opened(path) as file:
            number = 0
            while line := file.readline(_MOST_LINE):
                number += 1
                if not line.endswith(b"\n"):
                    return
                found = json.loads(line)
                if not isinstance(found, dict):
                    raise UsageError(f"{path}: line {number} is no JSON object")
                yield found
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: line {number} is no JSON: {error}") from error
