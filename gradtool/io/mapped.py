"""Tensors whose bytes lie in a file, which is mapped once, when the first large one is looked at.

Small ones are read, and so is whatever is copied: a file that shrinks meanwhile comes up short,
where a mapping would have the process killed.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from gradtool.errors import MissingData
from gradtool.graph import walk

# A mapping keeps a file descriptor; past this many files, the rest are read instead.
MOST_DESCRIPTORS = 128
SMALL = 1 << 16  # bytes of a tensor that is read where others are mapped
CHUNK = 1 << 26  # bytes that are copied at once


@dataclass
class DataFile:
    """One file of tensor bytes, mapped at first use and shared by all its tensors."""

    path: Path
    identity: tuple[int, int, int, int]
    _view: memoryview | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Bytes in the file when the model was loaded."""
        return self.identity[2]

    def unchanged(self) -> bool:
        """Whether the path still leads to the file that was seen at load time."""
        try:
            return identity(self.path.stat()) == self.identity
        except OSError:
            return False

    def view(self) -> memoryview:
        """The bytes of the whole file, read-only.

        Raises:
            MissingData: the file has gone or changed since the model was loaded.
        """
        if self._view is None:
            self._view = self._map()
        elif not self.unchanged():  # who reads behind the end of a mapped file is killed
            raise self._changed()
        return self._view

    def pieces(self, start: int, size: int, most: int) -> Iterator[memoryview]:
        """Bytes of the file, read and not mapped, at most so many at once.

        Raises:
            MissingData: the file has gone, or changed or shrunk since the model was loaded.
        """
        with self._opened() as file:
            file.seek(start)
            for place in range(0, size, most):
                piece = memoryview(np.empty(min(most, size - place), np.uint8))  # type: ignore[arg-type]
                if file.readinto(piece) != len(piece):  # type: ignore[attr-defined]
                    raise self._changed()
                yield piece.toreadonly()

    def _map(self) -> memoryview:
        with self._opened() as file:
            return _view(file, self.size)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with self.path.open("rb") as file:
                if identity(os.fstat(file.fileno())) != self.identity:
                    raise self._changed()
                yield file
        except OSError as error:
            raise MissingData(f"{self.path}: {error.strerror}") from error

    def _changed(self) -> MissingData:
        return MissingData(f"{self.path}: changed since the model was loaded; load the model again")


_live: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def _view(file: BinaryIO, size: int) -> memoryview:
    if len(_live) >= MOST_DESCRIPTORS:
        return memoryview(file.read())
    mapping = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    _live.add(mapping)
    return memoryview(mapping)


def identity(status: os.stat_result) -> tuple[int, int, int, int]:
    """What tells whether a file is still the same one, with the same content."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class MappedTensor(ir.ExternalTensor):
    """An external tensor that shares the mapping of its file; `file` is None where it is absent."""

    __slots__ = ("file",)

    def __init__(self, tensor: ir.ExternalTensor, file: DataFile | None) -> None:
        super().__init__(
            tensor.location,
            tensor.offset,
            tensor.length,
            tensor.dtype,
            shape=ir.Shape(tensor.shape),
            name=tensor.name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
            base_dir=tensor.base_dir,
        )
        self.file = file

    @property
    def absent(self) -> bool:
        """Whether the model was loaded without the file that holds the bytes."""
        return self.file is None and self.size > 0

    def tobytes(self) -> bytes:
        """A copy of the bytes, as they are in the file."""
        return bytes(self.memory())

    def memory(self) -> memoryview:
        """The bytes as they are in the file, without a copy.

        Raises:
            MissingData: the file is absent.
        """
        if self.nbytes <= SMALL:
            return next(self.pieces(), memoryview(b""))
        start = self.offset or 0
        return self._file().view()[start : start + self.nbytes]

    def pieces(self, most: int = 1 << 62) -> Iterator[memoryview]:
        """The bytes, read and not mapped, at most so many at once.

        Raises:
            MissingData: the file is absent, or has changed.
        """
        if self.size == 0:
            return iter(())
        return self._file().pieces(self.offset or 0, self.nbytes, most)

    def _file(self) -> DataFile:
        if self.file is None:
            raise MissingData(
                f"tensor {self.name!r}: its data file {os.fspath(self.location)!r} is not in the "
                "model's folder, or a Git LFS pointer; put it there and load the model again"
            )
        return self.file

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value, read-only and without a copy where numpy has the element type."""
        if self._array is None:
            self._array = self._decode(self.memory())
        return self._array

    def read(self) -> np.ndarray[Any, Any]:
        """The value, read and not mapped, and not kept."""
        return self._decode(next(self.pieces(), memoryview(b"")))

    def leading(self, count: int) -> np.ndarray[Any, Any]:
        """The first elements, in one row, read and not mapped."""
        if self.dtype.bitwidth % 8 or self.size <= count:
            return self.read().reshape(-1)[:count]
        size = count * self.dtype.bitwidth // 8
        data = next(self._file().pieces(self.offset or 0, size, size))
        return np.frombuffer(data, np.dtype(self.dtype.numpy()).newbyteorder("<"))

    def _decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        shape = tuple(self.shape.numpy())
        if self.dtype.bitwidth % 8:
            proto = onnx.TensorProto(data_type=self.dtype.value, dims=shape, raw_data=bytes(data))
            return ir.serde.deserialize_tensor(proto).numpy()
        dtype = np.dtype(self.dtype.numpy()).newbyteorder("<")
        return np.frombuffer(data, dtype=dtype).reshape(shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:  # noqa: FBT001
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def tofile(self, file: Any) -> None:
        """Write the bytes to an open binary file."""
        file.writelines(self.pieces(CHUNK))

    def release(self) -> None:
        """Forget the decoded value; the mapping belongs to the file and stays."""
        self._array = None


def attach(model: ir.Model, find: Callable[[str, str], DataFile | None]) -> None:
    """Give every external tensor the shared mapping of the file `find(location, where)` finds."""

    def mapped(tensor: ir.ExternalTensor) -> MappedTensor:
        location = os.fspath(tensor.location)
        return MappedTensor(tensor, find(location, f"tensor {tensor.name!r}"))

    for graph in walk.graphs(model.graph):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = mapped(value.const_value)
    bodies: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for body in bodies:
        for node in walk.nodes(body):
            for name, attribute in list(node.attributes.items()):
                if isinstance(attribute.value, ir.ExternalTensor):
                    node.attributes[name] = ir.AttrTensor(name, mapped(attribute.value))
