"""Folders of a class each, `FOLDER/CLASS/FILE`, and the inputs fed by them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradtool.errors import SystemErrors, UsageError
from gradtool.text.words import some
from gradtool.training.checks import range_of
from gradtool.training.input_spec import InputSpec

LABEL = "label"


@dataclass(frozen=True)
class ClassFolder:
    """Files of some kind by class: `labels` [files] are places among the sorted `classes`."""

    folder: Path
    files: tuple[Path, ...]
    labels: np.ndarray[Any, np.dtype[np.int64]]
    classes: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, suffixes: Sequence[str], known: Sequence[str] = ()) -> ClassFolder:
        """The files of a folder that end so; `known` are the classes of other data.

        Raises:
            UsageError: a folder cannot be read, or is a class that is not known.
        """
        found = files_by_class(folder, suffixes)
        names = tuple(known) or tuple(found)
        for name in found:
            if name not in names:
                raise UsageError(
                    f"{folder}: the class {name!r} is none of the data that are trained on: "
                    f"{some(list(names))}"
                )
        files = tuple(file for each in found.values() for file in each)
        counts = [len(each) for each in found.values()]
        places = np.array([names.index(name) for name in found], np.int64)
        return cls(folder, files, np.repeat(places, counts), names)

    def name(self, example: int) -> str:
        """The path of an example."""
        return str(self.files[example])

    @property
    def digest(self) -> str:
        """The fingerprint of the files: a hash of names and sizes."""
        found = hashlib.sha256()
        for file in self.files:
            found.update(f"{file.relative_to(self.folder).as_posix()}\0{size_of(file)}\n".encode())
        return found.hexdigest()[:16]


def size_of(file: Path) -> int:
    """The bytes of a file. Raises UsageError if it is gone."""
    with SystemErrors(file):
        return file.stat().st_size


def files_by_class(folder: Path, suffixes: Sequence[str]) -> dict[str, list[Path]]:
    """The files that end so in the folders of a folder, by the name of each, sorted."""
    with SystemErrors(folder):
        inner = [each for each in sorted(folder.iterdir()) if each.is_dir()]
        found = {
            each.name: [f for f in sorted(each.iterdir()) if f.suffix.lower() in suffixes]
            for each in inner if not each.name.startswith(".")
        }  # fmt: skip
    return {name: files for name, files in found.items() if files}


def sets_of(folder: Path, suffixes: Sequence[str]) -> list[str]:
    """The folders of a folder that hold classes themselves: train, val."""
    return [
        each.name for each in sorted(folder.iterdir())
        if each.is_dir() and files_by_class(each, suffixes)
    ]  # fmt: skip


def matched(
    takes: InputSpec, names: Mapping[str, str], source: str, what: str, ranks: Sequence[int]
) -> tuple[str, dict[str, str]]:
    """The input of the decoded `what`, and the data's name of each input.

    That is the input that is mapped to it, else the only other one with as many axes as `ranks`;
    of labels it is the one that outputs are held against, else the only one that is left.

    Raises:
        UsageError: no input takes it, or several could.
    """
    found = {name: of for name, of in names.items() if name in takes.inputs}
    decoded = _only(
        [name for name, of in found.items() if of == what]
        or [
            name for name, value in takes.inputs.items()
            if name not in found and name not in takes.labels and value.shape is not None
            and len(value.shape) in ranks
        ],
        takes, source, what,
    )  # fmt: skip
    found[decoded] = what
    left = [name for name in takes.inputs if name not in found]
    labels = [name for name in left if name in takes.labels] or left
    if LABEL not in found.values() and labels:
        found[_only(labels, takes, source, LABEL)] = LABEL
    return decoded, found


def _only(inputs: Sequence[str], takes: InputSpec, source: str, what: str) -> str:
    if len(inputs) == 1:
        return inputs[0]
    shown = some([f"{name} {value.shape}" for name, value in takes.inputs.items()])
    why = f"several inputs could take {what}" if inputs else f"no input takes {what}"
    raise UsageError(f"{source}: {why}: name it with --map INPUT={what}; the model takes {shown}")


def require_classes(takes: InputSpec, source: str, found: Mapping[str, str], count: int) -> str:
    """The message about the number of classes; empty if a model has as many.

    Raises:
        UsageError: the model has fewer.
    """
    limits = [range_of(takes.inputs[name]) for name, of in found.items() if of == LABEL]
    most = min((limit.high + 1 for limit in limits if limit is not None), default=count)
    if count > most:
        raise UsageError(f"{source}: {count} classes, and the model has {most}")
    return f"{source}: {count} classes of the {most} that the model has" if count < most else ""


@dataclass(frozen=True)
class Layout:
    """The axes of channels and the other sizes of an input [N, ...], None where open."""

    axis: int | None
    channels: int | None
    sizes: tuple[int | None, ...]

    @classmethod
    def of(cls, takes: InputSpec, name: str, usual: Sequence[int]) -> Layout:
        """The layout of an input: channels are one of the `usual` numbers, in front or behind."""
        shape = takes.inputs[name].shape
        assert shape is not None  # noqa: S101 - it was asked for its rank
        dims = [dim if isinstance(dim, int) else None for dim in shape]
        behind = dims[-1] in usual and dims[1] not in usual
        axis = len(dims) - 1 if behind else 1
        rest = tuple(dim for place, dim in enumerate(dims) if place not in (0, axis))
        return cls(axis, dims[axis], rest)

    def laid(self, channels: int, sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of an example."""
        return (channels, *sizes) if self.axis == 1 else (*sizes, channels)
