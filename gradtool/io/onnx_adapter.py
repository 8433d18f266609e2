"""Adapter files of stock onnxruntime (`.onnx_adapter`): tensors by name.

They are flatbuffers, written here by hand: onnxruntime, which has a writer too, is no dependency of
ours, and its order of tensors is that of a hash table.

Source: onnxruntime/lora/adapter_format/adapter_schema.fbs (onnxruntime 1.20, format version 1);
flatbuffers.dev/internals for the layout.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.io.safetensors import little_endian

SUFFIX = ".onnx_adapter"
_IDENTIFIER = b"TORT"
_FORMAT, _ADAPTER, _MODEL = 1, 1, 1  # versions
_LARGEST = 1 << 31  # bytes of a flatbuffer
_ALIGNED = 8  # bytes: sizes are int64, and data asks for as much

# Sizes of fields: the names of the two tables in the schema, and the offsets of their fields.
_ADAPTER_TABLE = struct.Struct("<iiiiI")  # to the vtable, three versions, to the parameters
_ADAPTER_FIELDS = (4, 8, 12, 16)
_PARAMETER_TABLE = struct.Struct("<iIIiI")  # to the vtable, to name, to dims, type, to the data
_PARAMETER_FIELDS = (4, 8, 12, 16)


def writer(arrays: Mapping[str, np.ndarray[Any, Any]]) -> Writer:
    """The bytes of a file of tensors, in the order of their names.

    Raises:
        UsageError: they are more than the format can hold.
    """
    return Writer(arrays)


class Writer:
    """The bytes of a file, and how many they are."""

    def __init__(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._arrays = dict(sorted(arrays.items()))
        self._data = bytearray()
        self._write()
        self.size = len(self._data)
        if self.size >= _LARGEST:
            raise UsageError(f"adapters of {self.size} bytes are too large for an {SUFFIX} file")

    def write(self, file: BinaryIO) -> None:
        """Write everything to an open file."""
        file.write(self._data)

    def _write(self) -> None:
        """Header, vtables, the root, its vector of parameters, then each parameter: all offsets
        but those to vtables lead forward.
        """  # noqa: D205 - one sentence
        data = self._data
        data += bytes(4) + _IDENTIFIER
        vtables = (
            self._vtable(_ADAPTER_FIELDS, _ADAPTER_TABLE.size),
            self._vtable(_PARAMETER_FIELDS, _PARAMETER_TABLE.size),
        )
        self._pad(4)
        root = len(data)
        self._point(0, root)
        data += _ADAPTER_TABLE.pack(root - vtables[0], _FORMAT, _ADAPTER, _MODEL, 0)
        self._point(root + _ADAPTER_FIELDS[-1], len(data))
        data += struct.pack("<I", len(self._arrays)) + bytes(4 * len(self._arrays))
        first = len(data) - 4 * len(self._arrays)
        for number, (name, array) in enumerate(self._arrays.items()):
            self._point(first + 4 * number, self._parameter(name, array, vtables[1]))

    def _parameter(self, name: str, array: np.ndarray[Any, Any], vtable: int) -> int:
        data = self._data
        self._pad(4)
        table = len(data)
        kind = ir.DataType.from_numpy(array.dtype).value
        data += _PARAMETER_TABLE.pack(table - vtable, 0, 0, kind, 0)
        text = name.encode()
        self._point(table + _PARAMETER_FIELDS[0], len(data))
        data += struct.pack("<I", len(text)) + text + b"\0"
        self._vector(
            table + _PARAMETER_FIELDS[1], array.ndim, struct.pack(f"<{array.ndim}q", *array.shape)
        )
        self._vector(table + _PARAMETER_FIELDS[3], array.nbytes, little_endian(array))
        return table

    def _vtable(self, fields: tuple[int, ...], size: int) -> int:
        place = len(self._data)
        count = 2 * (2 + len(fields))  # bytes of its own, which are shorts
        self._data += struct.pack(f"<{2 + len(fields)}H", count, size, *fields)
        return place

    def _vector(self, at: int, count: int, content: bytes | memoryview) -> None:
        """A vector whose elements are aligned, and the offset to it."""
        self._pad(_ALIGNED, ahead=4)
        self._point(at, len(self._data))
        self._data += struct.pack("<I", count)
        self._data += content

    def _pad(self, align: int, ahead: int = 0) -> None:
        self._data += bytes(-(len(self._data) + ahead) % align)

    def _point(self, at: int, to: int) -> None:
        struct.pack_into("<I", self._data, at, to - at)
