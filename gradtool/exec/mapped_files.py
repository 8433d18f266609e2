"""Files of weights, mapped and read in place.

A mapping stays what it is when another file takes the name: whoever writes over a model, as this
training may, renames.  A file that is changed or cut in place is told by a look at it after each
step; until then reads behind its end give zeros (`native/mapping.py`).
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.errors import MissingData, UsageError
from gradtool.io.file_tensors import DataFile, FileTensor
from gradtool.io.stored import StoredFile
from gradtool.native import mapping

Array = np.ndarray[Any, Any]


class _Watched(mmap.mmap):
    """A mapping whose watch ends with it."""

    watch: mapping.Watch | None = None

    def __del__(self) -> None:
        if self.watch is not None:
            self.watch.end()
            self.watch = None


class MappedFile:
    """A data file as it was when the model was loaded, mapped to be read."""

    def __init__(self, file: DataFile) -> None:
        """Map all of it.

        Raises:
            MissingData: it has gone, cannot be mapped, or is not what it was.
        """
        self._file = file
        try:
            self._stored = StoredFile(file.path)
            file.require_same(self._stored)
            self._mapped = _Watched(self._stored.descriptor, file.size, access=mmap.ACCESS_READ)
        except UsageError as error:
            raise MissingData(str(error)) from error
        except (OSError, ValueError) as error:
            raise MissingData(f"{file.path}: cannot be mapped: {error}") from error
        self._all = np.frombuffer(self._mapped, np.uint8)
        watch = self._mapped.watch = mapping.watch(self._all.ctypes.data, file.size)
        if watch is None:
            raise MissingData(f"{file.path}: too many files are mapped; close other sessions")
        self._watch = watch

    def bytes_of(self, tensor: FileTensor) -> Array:
        """The bytes of a tensor where they lie, read-only."""
        start = tensor.offset or 0
        return self._all[start : start + tensor.nbytes]

    def require_same(self) -> None:
        """Refuse what was read of a file that is not what it was.

        Raises:
            MissingData: it was changed or cut, or a read of it has failed.
        """
        size = self._stored.size
        if size < self._file.size:
            raise MissingData(f"{self._file.path}: has shrunk while it was read: to {size} bytes")
        self._file.require_same(self._stored)
        if self._watch.is_lost():
            raise MissingData(f"{self._file.path}: cannot be read: a page of it could not be had")


@dataclass(frozen=True)
class InPlace:
    """The bytes of a value outside of the arena: in a mapped `file`, or None for own memory."""

    data: Array
    file: MappedFile | None = None

    @classmethod
    def own(cls, array: Array) -> InPlace:
        """A copy of an array, in memory."""
        return cls(np.array(array, order="C").reshape(-1).view(np.uint8))


class Files:
    """Data files, each mapped once."""

    def __init__(self) -> None:
        self._mapped: dict[DataFile, MappedFile] = {}

    def find(self, tensor: FileTensor) -> InPlace:
        """The bytes of a tensor whose file is there.

        Raises:
            MissingData: the file is absent, has changed, or cannot be mapped.
        """
        if tensor.file is None:
            return InPlace.own(tensor.read())
        if tensor.file not in self._mapped:
            self._mapped[tensor.file] = MappedFile(tensor.file)
        mapped = self._mapped[tensor.file]
        return InPlace(mapped.bytes_of(tensor), mapped)
