"""Pointers of Git LFS in the place of large files until they are fetched.

Source: git-lfs, docs/spec.md: a pointer is text of less than 1024 bytes that begins with its
version.
"""

from __future__ import annotations

from pathlib import Path

_BEGINNING = b"version https://git-lfs.github.com/spec/"
_MOST_BYTES = 1023


def is_pointer(data: bytes) -> bool:
    """Whether these are the bytes of a pointer."""
    return len(data) <= _MOST_BYTES and data.startswith(_BEGINNING)


def is_pointer_file(path: Path) -> bool:
    """Whether a file is a pointer. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return is_pointer(file.read(_MOST_BYTES + 1))
