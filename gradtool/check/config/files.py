"""Files of a configuration: `gradtool.toml`, or `[tool.gradtool]` of `pyproject.toml`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gradtool.errors import SystemErrors, UsageError
from gradtool.text import toml

OWN = "gradtool.toml"
SHARED = "pyproject.toml"
_MOST_BYTES = 1 << 22
_HEADER = re.compile(r"^\s*\[\[\s*(?:tool\s*\.\s*gradtool\s*\.\s*)?case\s*\]\]")


def find(start: Path) -> Path | None:
    """The configuration of a folder: its own, or the nearest one up to the root of the repository.

    Outside of a repository no folder above is looked into: it may be anybody's.
    """
    start = start.resolve()
    above = [start, *start.parents]
    root = next((n for n, folder in enumerate(above) if (folder / ".git").exists()), 0)
    for folder in above[: root + 1]:
        for name in (OWN, SHARED):
            path = folder / name
            if path.is_file() and (name == OWN or _section(_read(path), path) is not None):
                return path
    return None


def read(path: Path) -> tuple[dict[str, Any], list[int]]:
    """The tables of a configuration, and the first line of each case, if known.

    Raises:
        UsageError: the file cannot be read, is no TOML, or holds no configuration of ours.
    """
    text = _read(path)
    found = _section(text, path)
    if found is None:
        raise UsageError(f"{path}: has no [tool.gradtool]")
    lines = [n for n, line in enumerate(text.splitlines(), 1) if _HEADER.match(line)]
    return found, lines


def _read(path: Path) -> str:
    try:
        with SystemErrors(path):
            if path.stat().st_size > _MOST_BYTES:
                raise UsageError(f"{path}: is too large: more than {_MOST_BYTES} bytes")
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8: {error.reason}") from error


def _section(text: str, path: Path) -> dict[str, Any] | None:
    """Our part of a file: all of it, or `[tool.gradtool]` if there is a `[tool]`."""
    document = toml.parsed(text, path)
    if path.name != SHARED and "tool" not in document:
        return document
    tool = document.get("tool", {})
    found = tool.get("gradtool") if isinstance(tool, dict) else None
    if found is not None and not isinstance(found, dict):
        raise UsageError(f"{path}: tool.gradtool is no table: write [tool.gradtool.check]")
    return found
