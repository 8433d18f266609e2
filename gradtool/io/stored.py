"""Arrays in a file: read on demand, and not through a mapping.

A reader of a mapped file behind a moved end is killed (SIGBUS); here a read comes up short.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np

from gradtool.errors import SystemErrors, UsageError
from gradtool.io import contained

Array = np.ndarray[Any, Any]
GAP = 4096  # bytes between two places that are read along


def opened(path: Path, *, own: bool = False) -> BinaryIO:
    """A regular file to read; nobody waits for a pipe, or takes a device for data.

    Its name may be our `own`: no link is followed there.

    Raises:
        UsageError: there is none, it cannot be read, or something else is in its place.
    """
    try:
        return contained.opened(path, own=own)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: cannot be read: {why}") from error


class StoredFile:
    """An open file, read at any place, by several threads; `descriptor` is the system's."""

    def __init__(self, path: Path, *, own: bool = False) -> None:
        """Open it; its name may be our `own`: no link is followed there.

        Raises:
            UsageError: there is no such regular file.
        """
        self.path = path
        with opened(path, own=own) as file:
            self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)
        self._lock = Lock()

    @property
    def status(self) -> os.stat_result:
        """The system's present status of it."""
        return os.fstat(self.descriptor)

    @property
    def size(self) -> int:
        """Its present size in bytes."""
        return self.status.st_size

    def read(self, start: int, size: int) -> bytes:
        """So many bytes from `start` on.

        Raises:
            UsageError: the file ends before, or cannot be read.
        """
        made = bytearray(size)
        self.read_into(memoryview(made), start)
        return bytes(made)

    def read_into(self, view: memoryview, start: int) -> None:
        """Fill a view with the bytes from `start` on.

        Raises:
            UsageError: the file ends before, or cannot be read.
        """
        done = 0
        with SystemErrors(self.path):
            while done < len(view):
                count = self._read(view[done:], start + done)
                if not count:
                    raise UsageError(
                        f"{self.path}: has shrunk while it was read: to {self.size} bytes"
                    )
                done += count

    def _read(self, view: memoryview, start: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self.descriptor, [view], start)
        with self._lock:  # Windows
            os.lseek(self.descriptor, start, os.SEEK_SET)
            piece = os.read(self.descriptor, len(view))
        view[: len(piece)] = piece
        return len(piece)


@dataclass(frozen=True)
class Stored:
    """An array in a file, from byte `start` on, in C order, or if `turned` in that of Fortran."""

    file: StoredFile
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    turned: bool = False

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array."""
        return prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: FBT001
        """All of it."""
        flat = self.flat(0, prod(self.shape))
        made = flat.reshape(self.shape, order="F" if self.turned else "C")
        return made if dtype is None else made.astype(dtype, copy=False)

    def flat(self, start: int, stop: int) -> Array:
        """Elements in the order of the file, in one row."""
        made = np.empty(stop - start, self.dtype)
        self._fill(made.view(np.uint8), start * self.dtype.itemsize)
        return made

    def rows(self, start: int, stop: int) -> Array:
        """The rows along the first axis from `start` to `stop`, of an array in C order."""
        inner = prod(self.shape[1:])
        return self.flat(start * inner, stop * inner).reshape(stop - start, *self.shape[1:])

    def take(self, indices: Array, axis: int = 0) -> Array:
        """The elements at some indices of an axis, as `numpy.take` has it.

        Raises:
            IndexError: the axis has no such index.
            UsageError: the file has shrunk, or cannot be read.
        """
        if self.turned:
            plain = Stored(self.file, self.dtype, self.shape[::-1], self.start)
            return plain.take(indices, self.ndim - 1 - axis).T
        size, before, after = self.shape[axis], self.shape[:axis], self.shape[axis + 1 :]
        wanted = np.asarray(indices, np.int64)
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < size):
            raise IndexError(f"an index is out of bounds for an axis of size {size}")
        inner = prod(after) * self.dtype.itemsize
        made = np.empty((prod(before), wanted.size, inner), np.uint8)
        if made.size:
            order = np.argsort(wanted, kind="stable")
            for first, last in _spans(wanted[order], inner):
                self._take(made, order[first:last], wanted[order[first:last]], size)
        return made.reshape(-1).view(self.dtype).reshape(*before, wanted.size, *after)

    def _take(self, made: Array, places: Array, rows: Array, size: int) -> None:
        """Put neighbouring rows into their places, in each block of rows."""
        low, inner = int(rows[0]), made.shape[2]
        height = int(rows[-1]) + 1 - low
        if height == 1 and len(places) == 1:
            for block, rest in enumerate(made):
                self._fill(rest[places[0]], (block * size + low) * inner)
            return
        read = np.empty((height, inner), np.uint8)
        for block, rest in enumerate(made):
            self._fill(read.reshape(-1), (block * size + low) * inner)
            rest[places] = read[rows - low]

    def _fill(self, target: Array, start: int) -> None:
        if target.size:
            self.file.read_into(memoryview(target), self.start + start)  # type: ignore[arg-type]


class Reading(Mapping[str, Array]):
    """Arrays by name, each read when it is asked for, and not kept."""

    def __init__(self, stored: Mapping[str, Stored | Array]) -> None:
        self._stored = stored

    def __getitem__(self, name: str) -> Array:
        return np.asarray(self._stored[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def _spans(rows: Array, inner: int) -> Iterator[tuple[int, int]]:
    """The spans of sorted rows of so many bytes, cut at gaps too large to read."""
    cuts = np.flatnonzero((np.diff(rows) - 1) * inner > GAP) + 1
    edges = [0, *cuts.tolist(), len(rows)]
    return pairwise(edges)
