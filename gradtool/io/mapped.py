"""Tensors whose bytes are mapped from a file: each file once, when the first of them is read."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable
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
        return self._view

    def _map(self) -> memoryview:
        try:
            with self.path.open("rb") as file:
                if identity(os.fstat(file.fileno())) != self.identity:
                    raise MissingData(
                        f"{self.path}: changed since the model was loaded; load the model again"
                    )
                return _view(file, self.size)
        except OSError as error:
            raise MissingData(f"{self.path}: {error.strerror}") from error


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
        if self.size == 0:
            return memoryview(b"")
        if self.file is None:
            raise MissingData(
                f"tensor {self.name!r}: its data file {os.fspath(self.location)!r} is not in the "
                "model's folder, or a Git LFS pointer; put it there and load the model again"
            )
        start = self.offset or 0
        return self.file.view()[start : start + self.nbytes]

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value, read-only and without a copy where numpy has the element type."""
        if self._array is None:
            self._array = self._decode()
        return self._array

    def _decode(self) -> np.ndarray[Any, Any]:
        shape = tuple(self.shape.numpy())
        if self.dtype.bitwidth % 8:
            proto = onnx.TensorProto(
                data_type=self.dtype.value, dims=shape, raw_data=bytes(self.memory())
            )
            return ir.serde.deserialize_tensor(proto).numpy()
        dtype = np.dtype(self.dtype.numpy()).newbyteorder("<")
        return np.frombuffer(self.memory(), dtype=dtype).reshape(shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:  # noqa: FBT001
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def tofile(self, file: Any) -> None:
        """Write the bytes to an open binary file."""
        file.write(self.memory())

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
