"""Tensors whose bytes lie in a file beside the model.

A data file must be a regular file inside the model's own folder, large enough for its content by
the model. It may be absent: the tensor is then known by shape only.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from gradtool.errors import ModelError
from gradtool.io import lfs
from gradtool.io.file_tensors import DataFile, FileTensor, identity

_KEYS = frozenset({"location", "offset", "length", "checksum"})
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Reference:
    """The declared place of a tensor's bytes; `offset` and `length` in bytes."""

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


class Folder:
    """The folder of a model: finds data files in it and nowhere else.

    A model reached through a link (as in the caches of model hubs) has its data beside the link;
    the target of the link beside it must lie in the folder of the model itself.
    """

    def __init__(self, path: Path | None) -> None:
        """Take the model's path as it was given; None for a model without a folder."""
        self.given = None if path is None else path.parent.resolve()
        self.inside = () if path is None else (path.parent.resolve(), path.resolve().parent)
        self._files: dict[str, DataFile | None] = {}

    def find(self, location: str, where: str) -> DataFile | None:
        """The data file at a location, None if there is none, or a pointer in its place.

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
            if not stat.S_ISREG(status.st_mode):
                raise ModelError(f"{where}: external data {location!r} is not a regular file")
            if lfs.is_pointer_file(path):
                return None
        except FileNotFoundError:
            return None
        except (OSError, RuntimeError) as error:
            raise ModelError(f"{where}: external data {location!r}: {error}") from error
        return DataFile(path, identity(status))


def of_program(tensor: ir.ExternalTensor) -> FileTensor:
    """An external tensor of a model in memory: one of ours, whoever made it.

    Raises:
        ModelError: its file lies outside the folder that it names, or is not a regular file.
    """
    if isinstance(tensor, FileTensor):
        return tensor
    path = Path(tensor.path)
    location = os.fspath(tensor.location) if tensor.base_dir else path.name
    folder = Folder(Path(tensor.base_dir or path.parent) / path.name)
    return FileTensor(tensor, folder.find(location, f"tensor {tensor.name!r}"))


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
