"""Tensors whose bytes lie in a file beside the model.

A data file must be a regular file inside the model's own folder, large enough for what the model
says it holds. It may be absent: the tensor is then known by shape only. Each file is mapped once,
when the first of its tensors is read.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from gradtool.errors import MissingData, ModelError

# Before Python 3.13 a mapping keeps a file descriptor; past this many, files are read instead.
MOST_DESCRIPTORS = 128
_KEYS = frozenset({"location", "offset", "length", "checksum"})
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Reference:
    """Where a tensor's bytes are said to lie; `offset` and `length` in bytes."""

    location: str
    offset: int
    length: int | None


def reference(tensor: onnx.TensorProto, where: str) -> Reference:
    """The checked `external_data` entries of a tensor.

    Raises:
        ModelError: a location that is not a plain relative path, or numbers that are none.
    """
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key not in _KEYS or entry.key in entries:
            raise ModelError(f"{where}: external data key {entry.key!r} is unknown or given twice")
        entries[entry.key] = entry.value
    location = entries.get("location", "")
    parts = location.split("/")
    if (
        not location
        or "" in parts
        or ".." in parts
        or parts[-1] == "."
        or ":" in parts[0]
        or "\\" in location
        or not location.isprintable()
    ):
        raise ModelError(
            f"{where}: external data location {location!r} is not a plain path inside the "
            "model's folder"
        )
    length = _number(entries, "length", where)
    return Reference(location, _number(entries, "offset", where) or 0, length)


def _number(entries: dict[str, str], key: str, where: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _LARGEST):
        raise ModelError(f"{where}: external data {key} {text!r} is not a number of bytes")
    return int(text)


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
            return _identity(self.path.stat()) == self.identity
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
                if _identity(os.fstat(file.fileno())) != self.identity:
                    raise MissingData(
                        f"{self.path}: changed since the model was loaded; load the model again"
                    )
                return _view(file, self.size)
        except OSError as error:
            raise MissingData(f"{self.path}: {error.strerror}") from error


_mapped = 0


def _view(file: BinaryIO, size: int) -> memoryview:
    global _mapped  # noqa: PLW0603 - descriptors are counted for the whole process
    if sys.version_info >= (3, 13):
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, trackfd=False))
    if _mapped >= MOST_DESCRIPTORS:
        return memoryview(file.read())
    _mapped += 1
    return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
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
                "model's folder; put it there and load the model again"
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


class Folder:
    """The folder of a model: finds data files in it and nowhere else.

    A model reached through a link (as in the caches of model hubs) has its data beside the link;
    what the link beside it leads to must lie in the folder that the model itself lies in.
    """

    def __init__(self, path: Path | None) -> None:
        """Take the model's path as it was given; None for a model without a folder."""
        self.given = None if path is None else Path(os.path.abspath(path)).parent  # noqa: PTH100
        self.inside = () if path is None else (self.given.resolve(), path.resolve().parent)  # type: ignore[union-attr]
        self._files: dict[str, DataFile | None] = {}

    def find(self, location: str, where: str) -> DataFile | None:
        """The data file at a location, None if there is none.

        Raises:
            ModelError: it lies outside the folder or is not a regular file.
        """
        if self.given is None:
            return None
        if location not in self._files:
            self._files[location] = self._look(location, where)
        return self._files[location]

    def _look(self, location: str, where: str) -> DataFile | None:
        assert self.given is not None  # noqa: S101 - find() returned before
        try:
            path = (self.given / location).resolve()
            if not any(path.is_relative_to(folder) for folder in self.inside):
                raise ModelError(
                    f"{where}: external data {location!r} leads out of the model's folder to "
                    f"{str(path)!r}"
                )
            status = path.stat()
        except FileNotFoundError:
            return None
        except (OSError, RuntimeError) as error:
            raise ModelError(f"{where}: external data {location!r}: {error}") from error
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{where}: external data {location!r} is not a regular file")
        return DataFile(path, _identity(status))


def check(tensor: onnx.TensorProto, nbytes: int, folder: Folder, where: str) -> None:
    """Refuse an external tensor whose place or size cannot be right. `nbytes` is its own size.

    Raises:
        ModelError: with the rule that is broken.
    """
    place = reference(tensor, where)
    if tensor.HasField("raw_data"):
        raise ModelError(f"{where}: has both raw data and external data")
    if place.length is not None and place.length != nbytes:
        raise ModelError(
            f"{where}: external data has {place.length} bytes, its shape and type need {nbytes}"
        )
    if place.offset + nbytes > _LARGEST:
        raise ModelError(f"{where}: external data ends past 2^63 bytes")
    file = folder.find(place.location, where)
    if file is not None and place.offset + nbytes > file.size:
        raise ModelError(
            f"{where}: external data {place.location!r} has {file.size} bytes, "
            f"{place.offset + nbytes} are needed"
        )


def attach(model: ir.Model, folder: Folder) -> None:
    """Give every external tensor of the model the shared mapping of its file."""
    scopes: list[ir.Graph] = [model.graph, *model.graph.subgraphs()]
    for graph in scopes:
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = _mapped_tensor(tensor, folder)
    for body in (model.graph, *model.functions.values()):
        for node in body.all_nodes():
            for name, attribute in node.attributes.items():
                if attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
                    continue
                if isinstance(attribute.value, ir.ExternalTensor):
                    tensor = _mapped_tensor(attribute.value, folder)
                    node.attributes[name] = ir.AttrTensor(name, tensor)


def _mapped_tensor(tensor: ir.ExternalTensor, folder: Folder) -> MappedTensor:
    location = os.fspath(tensor.location)
    return MappedTensor(tensor, folder.find(location, f"tensor {tensor.name!r}"))


def array(tensor: ir.TensorProtocol) -> np.ndarray[Any, Any]:
    """The value of a tensor, without a copy where it is mapped.

    Raises:
        MissingData: its data file is absent.
    """
    return tensor.numpy()
