"""Checkpoints: all that training needs to go on as if it had never stopped.

    step-00000120.safetensors   parameters, running statistics, the state of the optimizer
    step-00000120.json          where it stands, what it is of, and the hash of the other file

The tensors are written first: a checkpoint is there when its JSON is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from gradtool.errors import SystemErrors, UsageError
from gradtool.io import atomic, contained, safetensors
from gradtool.io.documents import is_text, is_whole, read_document, write_document
from gradtool.io.stored import Stored
from gradtool.training.journal import Journal, Mark
from gradtool.training.progress import Progress, progress_of

SCHEMA_VERSION = 1
PREFIX = "step-"
_HASH = "document_sha256"
SUFFIX = ".json"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as read: `progress`, `arrays` that stay in their file, journal length.

    `of` describes the training that it is of.
    """

    path: Path
    of: Mapping[str, Any]
    progress: Progress
    arrays: Mapping[str, Stored]
    journal: Mark


@dataclass(frozen=True)
class Folder:
    """The checkpoints of a training in a folder; `of` describes what it is a training of."""

    path: Path
    of: Mapping[str, Any]

    def save(
        self, progress: Progress, arrays: Mapping[str, Array] | None, journal: Mark, keep: int
    ) -> Path:
        """Write a checkpoint; of those before, the `keep` newest stay, and the best.

        Without `arrays`, those that the checkpoint of this step has stay.

        Raises:
            UsageError: the disk is full, or the folder cannot be written.
        """
        stem = self._stem(progress.step)
        tensors = stem.with_suffix(safetensors.SUFFIX)
        if arrays is None:
            digest = read_document(stem.with_suffix(SUFFIX), SCHEMA_VERSION, own=True)["sha256"]
        else:
            digest = _written(tensors, arrays)
        document = {
            "schema_version": SCHEMA_VERSION,
            **asdict(progress),
            "journal": journal.bytes,
            "journal_sha256": journal.sha256,
            "sha256": digest,
            "of": dict(self.of),
        }
        document[_HASH] = _hash_of(document)
        write_document(document, stem.with_suffix(SUFFIX), force=True, own=True)
        self._tidy(progress, keep)
        return stem.with_suffix(SUFFIX)

    def steps(self) -> list[int]:
        """The steps of which there is a checkpoint, in order."""
        names = (path.stem.removeprefix(PREFIX) for path in self.path.glob(f"{PREFIX}*{SUFFIX}"))
        steps = {int(name) for name in names if name.isascii() and name.isdigit()}
        return sorted(s for s in steps if os.path.lexists(self._stem(s).with_suffix(SUFFIX)))

    def load(self, step: int) -> Checkpoint:
        """The checkpoint of a step.

        Raises:
            UsageError: it is damaged, or of another model, data or recipe; what differs is named.
        """
        stem = self._stem(step)
        path, tensors = stem.with_suffix(SUFFIX), stem.with_suffix(safetensors.SUFFIX)
        document = read(path)
        of = document["of"]
        self._require_same(path, of)
        if contained.digest(tensors, own=True) != document.get("sha256"):
            raise UsageError(f"{tensors}: is damaged: its bytes are not those that were written")
        found = safetensors.load(tensors, own=True)
        progress, size = progress_of(path, document), document.get("journal")
        hashed = document.get("journal_sha256")
        if not is_whole(size) or size < 0 or not (hashed is None or is_text(hashed)):
            raise UsageError(f"{path}: is damaged: it does not say how far the journal went")
        return Checkpoint(path, of, progress, found.stored, Mark(size, hashed))

    def tables(self, step: int) -> Mapping[str, list[list[int]]]:
        """The tables of the evaluation of a step that has a checkpoint.

        Raises:
            UsageError: it is damaged.
        """
        path = self._stem(step).with_suffix(SUFFIX)
        return progress_of(path, read(path)).tables

    def clear(self) -> None:
        """Remove all checkpoints. Raises UsageError if one cannot be removed."""
        for suffix in (SUFFIX, safetensors.SUFFIX):
            for path in self.path.glob(f"{PREFIX}*{suffix}"):
                remove(path)

    def _require_same(self, path: Path, of: Mapping[str, Any]) -> None:
        from gradtool.training.resuming import unlike

        said = unlike(of, self.of)
        if said:
            raise UsageError(f"{path}: is a checkpoint of another training: {said}")

    def _stem(self, step: int) -> Path:
        return self.path / f"{PREFIX}{step:08}"

    def _tidy(self, progress: Progress, keep: int) -> None:
        """Remove obsolete checkpoints, and tensors left without their JSON."""
        steps = self.steps()
        kept = {*steps[-keep:], *progress.kept}
        for step in steps:
            if step not in kept:
                remove(self._stem(step).with_suffix(SUFFIX))
        names = {self._stem(step).name for step in kept}
        for path in self.path.glob(f"{PREFIX}*{safetensors.SUFFIX}"):
            if path.stem not in names:
                remove(path)


def read(path: Path) -> dict[str, Any]:
    """The contents of a checkpoint's JSON; `of` is a mapping.

    Raises:
        UsageError: it is damaged.
    """
    document = read_document(path, SCHEMA_VERSION, own=True)
    if document.get(_HASH, _hash_of(document)) != _hash_of(document):
        raise UsageError(f"{path}: is damaged: it does not say what was written")
    if not isinstance(document.get("of"), dict):
        raise UsageError(f"{path}: does not say what it is of")
    return document


def newest(folder: Path) -> dict[str, Any] | None:
    """The contents of the newest checkpoint in a folder; None where there is none.

    Raises:
        UsageError: it is damaged.
    """
    steps = Folder(folder, {}).steps()
    return read(folder / f"{PREFIX}{steps[-1]:08}{SUFFIX}") if steps else None


def best_tables(folder: Path) -> tuple[int, Mapping[str, list[list[int]]]] | None:
    """The tables of the best evaluation of a run, and its step; None where there are none.

    Raises:
        UsageError: a checkpoint is damaged.
    """
    held = Folder(folder, {})
    steps = held.steps()
    if not steps:
        return None
    path = folder / f"{PREFIX}{steps[-1]:08}{SUFFIX}"
    best = progress_of(path, read(path)).best
    step = best.step if best is not None and best.step in steps else steps[-1]
    tables = held.tables(step)
    return (step, tables) if tables else None


@dataclass(frozen=True)
class Records:
    """The folder of a training."""

    folder: Folder
    journal: Journal


def remove(path: Path) -> None:
    """Remove a file of a run, if it is there.

    Raises:
        UsageError: it is a folder, or the system refuses.
    """
    with SystemErrors(path, "cannot be removed"):
        path.unlink(missing_ok=True)


def _written(path: Path, arrays: Mapping[str, Array]) -> str:
    """Write tensors, whole or not at all; returns the hash of the file."""
    hashed = hashlib.sha256()
    writer = safetensors.Writer(arrays)

    def fill(file: BinaryIO) -> None:
        writer.write(cast("BinaryIO", _Hashing(file, hashed.update)))

    atomic.write([atomic.Output(atomic.target(path, force=True, own=True), fill)])
    return hashed.hexdigest()


class _Hashing:
    """A file whose bytes somebody else sees as well."""

    def __init__(self, file: BinaryIO, see: Callable[[Any], object]) -> None:
        self._file, self._see = file, see

    def write(self, data: Any) -> int:
        self._see(data)
        return self._file.write(data)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)


def _hash_of(document: Mapping[str, Any]) -> str:
    """The hash of what a document says beside it."""
    said = {key: value for key, value in document.items() if key != _HASH}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
