"""Tensors whose bytes lie in a file: read when somebody looks at them, and not mapped.

A reader of a mapped file behind an end that has moved is killed (SIGBUS), unless the library of
native kernels watches (`exec/mapped_files.py`); here a read comes up short.  Only small tensors are
kept: large ones are read again where nobody holds them.
"""

from __future__ import annotations

import io
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from gradtool.errors import MissingData, UsageError
from gradtool.graph import walk

if TYPE_CHECKING:
    from gradtool.io.stored import StoredFile

SMALL = 1 << 16  # bytes of a tensor kept once read
CHUNK = 1 << 26  # bytes that are copied at once
# Windows lets nobody replace a file that is mapped; files have the order of bytes of most machines.
MAPS = sys.platform != "win32" and sys.byteorder == "little"
_WORD = 4  # bytes of which native kernels want a multiple before an array (native/README.md)


@dataclass(frozen=True)
class DataFile:
    """One file of tensor bytes, as it was when the model was loaded."""

    path: Path
    identity: tuple[int, int, int, int]

    @property
    def size(self) -> int:
        """Bytes in the file when the model was loaded."""
        return self.identity[2]

    def unchanged(self) -> bool:
        """Whether the path still leads to the file seen at load time."""
        try:
            return identity(self.path.stat()) == self.identity
        except OSError:
            return False

    def pieces(self, start: int, size: int, most: int) -> Iterator[memoryview]:
        """Bytes of the file, at most so many at once.

        Raises:
            MissingData: the file has gone, or changed or shrunk since the model was loaded.
        """
        try:
            from gradtool.io.stored import StoredFile

            file = StoredFile(self.path)
            self.require_same(file)
            for place in range(start, start + size, most):
                piece = np.empty(min(most, start + size - place), np.uint8)
                file.read_into(memoryview(piece), place)  # type: ignore[arg-type]
                yield memoryview(piece).toreadonly()  # type: ignore[arg-type]
            self.require_same(file)
        except UsageError as error:
            raise MissingData(str(error)) from error

    def require_same(self, file: StoredFile) -> None:
        """Refuse an open file that is not the one seen at load time.

        Raises:
            MissingData: it is another one, or has changed.
        """
        if identity(file.status) != self.identity:
            raise MissingData(
                f"{self.path}: changed since the model was loaded; load the model again"
            )


def identity(status: os.stat_result) -> tuple[int, int, int, int]:
    """The identity of a file and its content."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class FileTensor(ir.ExternalTensor):
    """An external tensor, read and not mapped; `file` is None if it is absent."""

    __slots__ = ("_held", "file")

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
        self._held: Callable[[], np.ndarray[Any, Any] | None] = lambda: None

    @property
    def absent(self) -> bool:
        """Whether the model was loaded without the file of the bytes."""
        return self.file is None and self.size > 0

    @property
    def is_mappable(self) -> bool:
        """Whether kernels could read the bytes where they lie: the numbers of one array, in place.

        Numbers of less than a byte are unpacked, and small tensors are kept.
        """
        width = self.dtype.bitwidth // 8
        return (
            self.nbytes > SMALL
            and not self.dtype.bitwidth % 8
            and not (self.offset or 0) % max(width, _WORD)
            and MAPS
        )

    def pieces(self, most: int = CHUNK) -> Iterator[memoryview]:
        """The bytes as they are in the file, at most so many at once.

        Raises:
            MissingData: the file is absent, or has changed.
        """
        return self._pieces(0, self.nbytes, most)

    def tobytes(self) -> bytes:
        """The bytes as they are in the file."""
        made = io.BytesIO()
        made.writelines(self.pieces())
        return made.getvalue()

    def tofile(self, file: Any) -> None:
        """Write the bytes to an open binary file."""
        file.writelines(self.pieces())

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value, read-only."""
        found = self._held()
        if found is None:
            found = made = self.read()
            self._held = (lambda: made) if self.nbytes <= SMALL else weakref.ref(made)
        return found

    def read(self) -> np.ndarray[Any, Any]:
        """The value, read-only, and not kept."""
        shape = tuple(self.shape.numpy())
        if not self.dtype.bitwidth % 8:
            return self.flat(0, self.size).reshape(shape)
        data = self.tobytes()
        proto = onnx.TensorProto(data_type=self.dtype.value, dims=shape, raw_data=data)
        return ir.serde.deserialize_tensor(proto).numpy()

    def flat(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Elements in the order of memory, in one row; no others are read, if they are bytes."""
        if self.dtype.bitwidth % 8:
            return self.numpy().reshape(-1)[start:stop]
        dtype = np.dtype(self.dtype.numpy()).newbyteorder("<")
        size = (min(stop, self.size) - start) * dtype.itemsize
        data = [*self._pieces(start * dtype.itemsize, size, max(size, 1))]
        return np.frombuffer(data[0] if data else b"", dtype)

    def _pieces(self, start: int, size: int, most: int) -> Iterator[memoryview]:
        if self.size == 0:
            return iter(())
        if self.file is None:
            raise MissingData(
                f"tensor {self.name!r}: its data file {os.fspath(self.location)!r} is not in the "
                "model's folder, or a Git LFS pointer; put it there and load the model again"
            )
        return self.file.pieces((self.offset or 0) + start, size, most)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:  # noqa: FBT001
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def release(self) -> None:
        """Forget the value."""
        self._held = lambda: None


def attach(model: ir.Model, find: Callable[[str, str], DataFile | None]) -> None:
    """Give every external tensor the file found by `find(location, where)`."""

    def found(tensor: ir.ExternalTensor) -> FileTensor:
        location = os.fspath(tensor.location)
        return FileTensor(tensor, find(location, f"tensor {tensor.name!r}"))

    for graph in walk.graphs(model.graph):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = found(value.const_value)
    bodies: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for body in bodies:
        for node in walk.nodes(body):
            for name, attribute in list(node.attributes.items()):
                if isinstance(attribute.value, ir.ExternalTensor):
                    node.attributes[name] = ir.AttrTensor(name, found(attribute.value))
