"""The state of a kit as files: safetensors, and a folder of one plain binary per tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradtool.errors import MissingData, SystemErrors, UsageError
from gradtool.io import contained, safetensors
from gradtool.io.stored import Reading, Stored
from gradtool.text.words import some, suggest

FOLDER = "state"
FILE = f"state{safetensors.SUFFIX}"
BINARY = ".bin"

Entry = Mapping[str, Any]  # of a manifest: name, type, shape, role, file


def file_names(names: Sequence[str]) -> list[str]:
    """A file for each tensor, in order: a distinct number, then the safe part of its name."""
    width = len(str(len(names)))
    return [
        f"{number:0{width}}-{re.sub(r'[^A-Za-z0-9._-]+', '_', name)[:80]}{BINARY}"
        for number, name in enumerate(names)
    ]


def read(path: Path, entries: Sequence[Entry]) -> Reading:
    """The parameters and statistics of a state, from a safetensors file or a folder as of the kit.

    The optimizer's state may be there, or be left out: only training needs it.

    Raises:
        MissingData: a parameter or a statistic is absent.
        UsageError: a name, a type or a shape is not of this kit, or a file cannot be read.
    """
    known = {entry["name"]: entry for entry in entries}
    found: Mapping[str, np.ndarray[Any, Any] | Stored] = (
        _from_folder(path, entries) if path.is_dir() else _from_file(path, known)
    )
    weights = [n for n, e in known.items() if e["role"] != "optimizer"]
    lacking = [name for name in weights if name not in found]
    if lacking:
        raise MissingData(f"{path}: lacks {some(lacking)}, which the kit's model is made of")
    return Reading({name: found[name] for name in weights})


def _from_file(path: Path, known: Mapping[str, Entry]) -> Mapping[str, Stored]:
    arrays = safetensors.load(path).stored
    for name, array in arrays.items():
        if name not in known:
            raise UsageError(f"{path}: the kit has no state {name!r}{suggest(name, known)}")
        dtype, shape = safetensors.TYPES[known[name]["type"]], tuple(known[name]["shape"])
        if (array.dtype, array.shape) != (dtype, shape):
            raise UsageError(
                f"{path}: {name!r} is {array.dtype}{list(array.shape)}, in the kit "
                f"{dtype}{list(shape)}"
            )
    return arrays


def _from_folder(path: Path, entries: Sequence[Entry]) -> Mapping[str, np.ndarray[Any, Any]]:
    expected = {Path(entry["file"]).name: entry for entry in entries}
    there = sorted(each.name for each in path.iterdir() if each.suffix == BINARY)
    unknown = [name for name in there if name not in expected]
    if unknown:
        raise UsageError(f"{path}: the kit has no state in a file {unknown[0]!r}")
    found = {}
    for file in there:
        entry = expected[file]
        found[entry["name"]] = _binary(path / file, entry)
    return found


def _binary(path: Path, entry: Entry) -> np.ndarray[Any, Any]:
    dtype, shape = safetensors.TYPES[entry["type"]], tuple(entry["shape"])
    with SystemErrors(path), contained.opened(path) as file:
        data = file.read()
    wanted = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if len(data) != wanted:
        raise UsageError(
            f"{path}: has {len(data)} bytes, {entry['name']!r} of type {dtype}{list(shape)} has "
            f"{wanted}"
        )
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)
