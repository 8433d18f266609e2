"""The file of tensor bytes beside a model.

Its name says its content, so that no model ever finds the data of another one in its place, and a
model that is replaced finds its own until the last moment.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx_ir as ir

from gradtool.graph.tensors import is_external
from gradtool.io import contained
from gradtool.io.atomic import MODELS
from gradtool.io.external import of_program
from gradtool.io.file_tensors import identity
from gradtool.io.staging import alone
from gradtool.io.zeros import Zeros

_DIGEST = 8  # bytes


@dataclass(frozen=True)
class Placed:
    """A tensor and the offset of its bytes in the data file."""

    tensor: ir.TensorProtocol
    offset: int


@dataclass(frozen=True)
class DataFile:
    """The data file to be written beside a model; no tensors, no file."""

    path: Path
    tensors: tuple[Placed, ...]

    @classmethod
    def of(cls, model: Path, tensors: Sequence[Placed]) -> DataFile:
        """The data file of a model to be written at a path."""
        return cls(model.with_name(f"{model.name}.{_digest(tensors)}.data"), tuple(tensors))

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return max((p.offset + p.tensor.nbytes for p in self.tensors), default=0)

    def write(self, file: BinaryIO) -> None:
        """Write the tensors at their places, gaps filled with zeros.

        Zeros are holes, where the file system has such.
        """
        for placed in self.tensors:
            if isinstance(placed.tensor, Zeros):
                continue
            file.seek(placed.offset)
            file.writelines(_pieces(placed.tensor))
        file.truncate(self.size)


def is_data_of(path: Path, model: Path) -> bool:
    """Whether a file is, by its place and name, the data of a model, of whatever content."""
    return path.parent == model.parent and _content(path, model) is not None


def outdated(model: Path, *, plain: bool) -> list[Path]:
    """The data files that a model about to be replaced may be the last one to need.

    With `plain`, one whose name says no content may be among them.
    """
    try:
        found = sorted(path for path in model.parent.iterdir() if is_data_of(path, model))
    except OSError:
        return []
    return [p for p in found if _content(p, model) or (plain and _mentions(model, p.name))]


def remove_unused(files: Sequence[Path]) -> None:
    """Remove data files unnamed by any model beside them."""
    for path in files:
        with alone(path.parent), suppress(OSError):
            models = [each for each in path.parent.iterdir() if each.suffix in MODELS]
            if not any(_mentions(each, path.name) for each in models):
                path.unlink()


def _content(path: Path, model: Path) -> str | None:
    """The digest in the name of a data file; None if it is no data of the model."""
    name = rf"{re.escape(model.name)}(?:\.([0-9a-f]{{{2 * _DIGEST}}}))?\.data"
    found = re.fullmatch(name, path.name)
    return None if found is None else found[1] or ""


def _mentions(model: Path, name: str) -> bool:
    """Whether a file holds a name, or cannot be looked into, or somebody changes it."""
    try:
        if not model.is_file():
            return False
        with contained.opened(model, own=False) as file:
            before = identity(os.fstat(file.fileno()))
            found = contained.holds(file, name.encode())
            return found or identity(os.fstat(file.fileno())) != before
    except OSError:
        return True


def _digest(tensors: Sequence[Placed]) -> str:
    """The digest that tells contents of data files apart."""
    found = hashlib.blake2b(digest_size=_DIGEST)
    for placed in tensors:
        found.update(f"{placed.offset} {placed.tensor.nbytes}\n".encode())
        if not isinstance(placed.tensor, Zeros):
            for piece in _pieces(placed.tensor):
                found.update(piece)
    return found.hexdigest()


def _pieces(tensor: ir.TensorProtocol) -> Iterator[memoryview]:
    if is_external(tensor):
        return of_program(tensor).pieces()
    return iter((memoryview(tensor.tobytes()),))
