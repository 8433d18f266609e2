"""Arrays of `.npy` and `.npz` files, checked against their headers before any is made.

Source: the format of `numpy.lib.format`, versions 1 to 3.  Unlike numpy's reader, this one computes
nothing of a header, knows no objects, and takes of an archive members that numpy writes.
"""

from __future__ import annotations

import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.io.stored import Stored, StoredFile, opened
from gradtool.text.units import format_bytes

Array = np.ndarray[Any, Any]
MAGIC = b"\x93NUMPY"
SUFFIX = ".npy"
_ARCHIVE = (b"PK\x03\x04", b"PK\x05\x06")
_MOST_HEADER = 1 << 16  # bytes: longer ones describe structures
_MOST_AXES = 32
_MOST_BYTES = 1 << 62
_CHUNK = 1 << 20
_FIELD = re.compile(
    r"""\s*(['"])(\w+)\1\s*:\s*('[^']*'|"[^"]*"|True|False|\([\d\s,L]*\))\s*(?:,|(?=\}))"""
)
_END = re.compile(r"\s*\}\s*")
_KINDS = "biufcSUV"  # of numbers and texts, and of numbers that numpy has no name for
_NO_NUMBERS = {
    "O": "holds Python objects, which no file of numbers has: save numbers, or texts of one type",
    "M": "holds dates: save them as numbers",
    "m": "holds differences of dates: save them as numbers",
}
# What zipfile and zlib raise of files that are none.
_RAISED = (
    OSError, EOFError, ValueError, RuntimeError, IndexError, ArithmeticError, MemoryError,
    struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@dataclass(frozen=True)
class Header:
    """The header of a `.npy` file, whose array begins at `start`."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    turned: bool
    start: int

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return prod(self.shape) * self.dtype.itemsize


def read(path: Path, most: int | None = None) -> dict[str, Array]:
    """The arrays of an `.npz` file by name, or that of an `.npy` file by the name of the file.

    Raises:
        UsageError: the file is none of these, contradicts its header, holds something that is no
            array of numbers or texts, or takes more than `most` bytes.
    """
    with opened(path) as file:
        try:
            begin = file.read(len(MAGIC))
            file.seek(0)
            if begin.startswith(_ARCHIVE):
                return dict(_members(file, most))
            size = file.seek(0, 2)
            file.seek(0)
            header = _header(file, size)
            _require_room({path.stem: header}, most)
            return {path.stem: _array(file, header)}
        except _RAISED as error:
            raise _refused(path, error) from error


def stored(path: Path) -> Stored:
    """The array of an `.npy` file, read on demand.

    Raises:
        UsageError: the file is none, or contradicts its header.
    """
    held = StoredFile(path)
    with opened(path) as file:
        try:
            header = _header(file, held.size)
        except _RAISED as error:
            raise _refused(path, error) from error
    return Stored(held, header.dtype, header.shape, header.start, header.turned)


def _refused(path: Path, error: Exception) -> UsageError:
    why = getattr(error, "strerror", None) or " ".join(str(error).split()) or "it ends too early"
    return UsageError(f"{path}: not a readable .npy or .npz file: {why}")


def _members(file: IO[bytes], most: int | None) -> Iterator[tuple[str, Array]]:
    """The arrays of an archive, whose members are all looked at before the first is read."""
    with zipfile.ZipFile(file) as archive:
        found: dict[str, tuple[zipfile.ZipInfo, Header]] = {}
        for member in archive.infolist():
            name = _name(member)
            if name in found:
                raise ValueError(f"it has two arrays {name!r}")
            with archive.open(member) as data:
                try:
                    found[name] = member, _header(data, member.file_size)
                except ValueError as error:
                    raise ValueError(f"{name!r}: {error}") from error
        _require_room({name: header for name, (_, header) in found.items()}, most)
        for name, (member, header) in found.items():
            with archive.open(member) as data:
                data.read(header.start)
                yield name, _array(data, header)


def _name(member: zipfile.ZipInfo) -> str:
    """The name of a member, if it is one written by numpy."""
    name = member.filename
    if not name.endswith(SUFFIX) or ".." in re.split(r"[/\\]", name):
        raise ValueError(f"its member {name!r} is no array")
    if member.flag_bits & 1:
        raise ValueError(f"its member {name!r} is encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"its member {name!r} is compressed in another way than numpy does")
    return name.removesuffix(SUFFIX)


def _require_room(headers: dict[str, Header], most: int | None) -> None:
    total = sum(header.nbytes for header in headers.values())
    if most is not None and total > most:
        raise ValueError(
            f"its arrays take {format_bytes(total)} of memory, there is room for "
            f"{format_bytes(most)}"
        )


def _header(file: IO[bytes], size: int) -> Header:
    """The header of an array in a file of `size` bytes with nothing behind the array."""
    begin = file.read(len(MAGIC) + 2)
    if begin[: len(MAGIC)] != MAGIC or len(begin) < len(MAGIC) + 2:
        raise ValueError("it begins otherwise")
    version = begin[len(MAGIC)]
    if version not in (1, 2, 3):
        raise ValueError(f"its version {version} is unknown")
    form = struct.Struct("<H" if version == 1 else "<I")
    (length,) = form.unpack(file.read(form.size))
    start = len(begin) + form.size + length
    if start > size:
        raise ValueError("its header does not end in it")
    if length > _MOST_HEADER:
        raise ValueError(f"its header has {length} bytes: it is no array of numbers")
    text = file.read(length).decode("utf-8" if version == 3 else "latin1")
    header = Header(*_described(_fields(text)), start)
    if start + header.nbytes != size:
        raise ValueError(
            f"it has {size - start} bytes of an array {header.dtype}{list(header.shape)}, which "
            f"takes {header.nbytes}"
        )
    return header


def _fields(text: str) -> dict[str, str]:
    """The entries of a header, as they are written there."""
    if re.match(r"\s*\{.*'descr'\s*:\s*[\[(]", text, re.DOTALL):
        raise ValueError("its elements are structures: save each of their fields as an array")
    found: dict[str, str] = {}
    place = len(text) - len(text.lstrip()) + 1
    while text.lstrip().startswith("{") and (field := _FIELD.match(text, place)):
        if field[2] in found:
            raise ValueError(f"its header says {field[2]!r} twice")
        found[field[2]], place = field[3], field.end()
    if found.keys() != {"descr", "fortran_order", "shape"} or not _END.fullmatch(text, place):
        raise ValueError("its header describes no array")
    return found


def _described(fields: dict[str, str]) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """The type, the shape and the order of an array by its header."""
    order, shape = fields["fortran_order"], _shape(fields["shape"])
    if order not in ("True", "False"):
        raise ValueError("its header describes no array")
    try:
        dtype = np.dtype(fields["descr"][1:-1])
    except Exception as error:  # numpy raises anything on a foreign type
        raise ValueError(f"its type {fields['descr']} is unknown") from error
    if dtype.kind in _NO_NUMBERS:
        raise ValueError(f"it {_NO_NUMBERS[dtype.kind]}")
    plain = dtype.names is None and dtype.subdtype is None and dtype.itemsize
    if dtype.kind not in _KINDS or not plain:
        raise ValueError(f"its type {fields['descr']} is none of numbers")
    if prod(max(size, 1) for size in shape) * dtype.itemsize > _MOST_BYTES:
        raise ValueError(f"no array has the shape {list(shape)}")
    return dtype, shape, order == "True"


def _shape(text: str) -> tuple[int, ...]:
    sizes = re.findall(r"\d+", text)
    if (
        not re.fullmatch(r"\(\s*(?:\d{1,19}L?\s*(?:,\s*|(?=\))))*\)", text)
        or len(sizes) > _MOST_AXES
        or (len(sizes) == 1 and "," not in text)
    ):
        raise ValueError(f"its header has the shape {text[:60]}, which no array has")
    return tuple(map(int, sizes))


def _array(file: IO[bytes], header: Header) -> Array:
    """The next array of a file, read a piece at a time."""
    flat = np.empty(prod(header.shape), header.dtype)
    if header.nbytes:
        view, done = memoryview(flat.view(np.uint8)), 0  # type: ignore[arg-type]
        while done < header.nbytes:
            piece = file.read(min(_CHUNK, header.nbytes - done))
            if not piece:
                raise EOFError("it ends too early")
            view[done : done + len(piece)] = piece
            done += len(piece)
    if header.dtype.kind == "U" and flat.size:
        points = flat.view(np.dtype(np.uint32).newbyteorder(header.dtype.byteorder))
        if points.max() > sys.maxunicode:
            raise ValueError("it has texts of what is no Unicode")
    return flat.reshape(header.shape, order="F" if header.turned else "C")
