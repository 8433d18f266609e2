"""What happened, step by step: one JSON object a line, the same bytes for the same training."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gradtool.errors import UsageError
from gradtool.io import contained

NAME = "metrics.jsonl"
_MOST_LINE = 1 << 20  # bytes: more is none of ours


def has_entries(path: Path) -> bool:
    """Whether a journal tells of any step."""
    return path.exists() and path.stat().st_size > 0


class Journal:
    """A file of lines that is added to; what is not finished when a process dies is cut off."""

    def __init__(self, path: Path, size: int = 0) -> None:
        """Go on after the first `size` bytes of what is there.

        Raises:
            UsageError: the file cannot be written.
        """
        self.path = path
        try:
            self._file = contained.appended(path, size)
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error

    def write(self, entry: Mapping[str, Any]) -> None:
        """Add a line; numbers that are not finite are null."""
        line = json.dumps(_finite(entry), separators=(", ", ": "), allow_nan=False)
        try:
            self._file.write(f"{line}\n".encode())
        except OSError as error:
            raise self._failed(error) from error

    def settle(self) -> int:
        """Bring all lines to the disk; returns the bytes of the file.

        Raises:
            UsageError: the disk is full.
        """
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from error
        return self._file.tell()

    def close(self) -> None:
        """Write what is left."""
        try:
            self._file.close()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> UsageError:
        return UsageError(f"{self.path}: cannot be written: {error.strerror or error}")


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
        with contained.opened(path) as file:
            number = 0
            while line := file.readline(_MOST_LINE):
                number += 1
                if not line.endswith(b"\n"):
                    return
                found = json.loads(line)
                if not isinstance(found, dict):
                    raise UsageError(f"{path}: line {number} is no JSON object")
                yield found
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: line {number} is no JSON: {error}") from error
