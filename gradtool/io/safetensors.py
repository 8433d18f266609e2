"""Tensors by name in one file: a length, a JSON header, then the bytes of all, without gaps.

Source: the format of github.com/huggingface/safetensors, version 0.4.  Tensors are laid in order of
falling element size, then name, as its own writer does, so that each is aligned.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import ml_dtypes
import numpy as np

from gradtool.errors import UsageError
from gradtool.graph.tensors import Deferred
from gradtool.io import atomic
from gradtool.io.documents import is_text, is_whole
from gradtool.io.stored import Reading, Stored, StoredFile

SUFFIX = ".safetensors"
_LENGTH = struct.Struct("<Q")
_MOST_HEADER = 100_000_000  # bytes, that of the format's own reader
_MOST_AXES = 32
_MOST_ELEMENTS = 1 << 59
_METADATA = "__metadata__"
_TYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8), "I8": np.dtype(np.int8),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn), "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "U16": np.dtype(np.uint16), "I16": np.dtype(np.int16),
    "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16),
    "U32": np.dtype(np.uint32), "I32": np.dtype(np.int32), "F32": np.dtype(np.float32),
    "U64": np.dtype(np.uint64), "I64": np.dtype(np.int64), "F64": np.dtype(np.float64),
    "C64": np.dtype(np.complex64),
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
TYPES: Mapping[str, np.dtype[Any]] = {dtype.name: dtype for dtype in _NAMES}

# Each may be read on demand.
Arrays = Mapping[str, np.ndarray[Any, Any] | Deferred]


@dataclass(frozen=True)
class Tensors:
    """The content of a file: arrays by name, which stay in it, and texts about them."""

    stored: dict[str, Stored]
    metadata: dict[str, str]

    @property
    def arrays(self) -> Reading:
        """The arrays, each read when it is asked for."""
        return Reading(self.stored)


def save(
    path: str | os.PathLike[str],
    arrays: Arrays,
    metadata: Mapping[str, str] | None = None,
    *,
    force: bool = False,
) -> int:
    """Write arrays by name, whole or not at all; returns the bytes of the file.

    Raises:
        UsageError: the file exists without `force` or cannot be written, or the format has no
            such type.
    """
    writer = Writer(arrays, metadata)
    atomic.write([atomic.Output(atomic.target(path, force=force), writer.write)])
    return writer.size


class Writer:
    """The bytes of a file, tensor after tensor: no two of them are in memory at once."""

    def __init__(self, arrays: Arrays, metadata: Mapping[str, str] | None = None) -> None:
        for name, array in arrays.items():
            if array.dtype.newbyteorder("=") not in _NAMES:
                raise UsageError(f"safetensors has no type {array.dtype}, which {name!r} is of")
        self._arrays = sorted(arrays.items(), key=lambda pair: (-pair[1].dtype.itemsize, pair[0]))
        entries: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
        end = 0
        for name, array in self._arrays:
            start, end = end, end + array.nbytes
            entries[name] = {
                "dtype": _NAMES[array.dtype.newbyteorder("=")],
                "shape": list(array.shape),
                "data_offsets": [start, end],
            }
        header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
        self._header = header + b" " * (-len(header) % _LENGTH.size)
        self.size = _LENGTH.size + len(self._header) + end

    def write(self, file: BinaryIO) -> None:
        """Write everything to an open file."""
        file.write(_LENGTH.pack(len(self._header)))
        file.write(self._header)
        file.writelines(little_endian(array) for _, array in self._arrays)


def little_endian(array: np.ndarray[Any, Any] | Deferred) -> memoryview:
    """The bytes of an array as every one of our binary files has them: C order, little-endian."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return memoryview(plain.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def load(path: str | os.PathLike[str], *, own: bool = False) -> Tensors:
    """The content of a file, its bytes read on demand.

    Its name may be our `own`: no link is followed there.

    Raises:
        UsageError: the file cannot be read, or contradicts its header.
    """
    file = StoredFile(Path(path), own=own)
    try:
        entries, metadata = _parsed(file, file.size)
    except ValueError as error:
        raise UsageError(f"{path}: is no safetensors file: {error}") from error
    return Tensors(
        {n: Stored(file, e.dtype, e.shape, e.start) for n, e in entries.items()}, metadata
    )


@dataclass(frozen=True)
class _Entry:
    """A tensor and the offset of its bytes in the file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int


def _parsed(file: StoredFile, size: int) -> tuple[dict[str, _Entry], dict[str, str]]:
    """The tensors of a file, and the texts about them."""
    if size < _LENGTH.size:
        raise ValueError("it is too short")
    (length,) = _LENGTH.unpack(file.read(0, _LENGTH.size))
    if length > min(_MOST_HEADER, size - _LENGTH.size):
        raise ValueError("its header does not end in it")
    try:
        header = json.loads(file.read(_LENGTH.size, length), object_pairs_hook=_once)
    except RecursionError as error:
        raise ValueError("its header is nested too deeply") from error
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")  # noqa: TRY004 - one kind of failure
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(map(is_text, metadata.values())):
        raise ValueError(f"its {_METADATA} are no texts")
    begin = _LENGTH.size + length
    entries = {name: _entry(name, entry, begin, size) for name, entry in header.items()}
    ends = sorted(_spans(header))
    if any(end != start for (_, end), (start, _) in pairwise(ends)):
        raise ValueError("its tensors overlap, or leave gaps")
    if (ends[0][0] if ends else 0) or (ends[-1][1] if ends else 0) != size - begin:
        raise ValueError("its tensors are not all of its bytes")
    return entries, metadata


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose names are each said once."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"its header says {name!r} twice")
        found[name] = value
    return found


def _spans(header: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    for entry in header.values():
        start, end = entry["data_offsets"]
        yield start, end


def _entry(name: str, entry: Any, begin: int, size: int) -> _Entry:
    if not isinstance(entry, dict):
        raise ValueError(f"{name!r} is not described")  # noqa: TRY004 - one kind of failure
    kind, shape, span = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    dtype = _TYPES.get(kind) if is_text(kind) else None
    if dtype is None:
        raise ValueError(f"{name!r} is of the unknown type {kind!r}")
    if not _are_sizes(shape):
        raise ValueError(f"{name!r} has no shape")
    if not _are_sizes(span) or len(span) != 2 or not span[0] <= span[1] <= size - begin:
        raise ValueError(f"{name!r} does not lie in it")
    nbytes = span[1] - span[0]
    if nbytes != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name!r} has {nbytes} bytes, which is not {dtype}{shape}")
    if len(shape) > _MOST_AXES or math.prod(max(each, 1) for each in shape) > _MOST_ELEMENTS:
        raise ValueError(f"{name!r} has a shape that no array has")
    return _Entry(dtype.newbyteorder("<"), tuple(shape), begin + span[0])


def _are_sizes(found: object) -> TypeGuard[list[int]]:
    return isinstance(found, list) and all(is_whole(size) and size >= 0 for size in found)
