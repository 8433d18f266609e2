"""What was measured before, by the content of everything that it depends on."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from gradtool.check.baselines import SCHEMA_VERSION
from gradtool.check.cases import Case
from gradtool.check.data_files import locations
from gradtool.comparison.metrics import Metrics
from gradtool.errors import UsageError
from gradtool.io.documents import read_document
from gradtool.plugins import KERNELS, LOSSES, RULES
from gradtool.text.version import VERSION

FOLDER = Path(".gradtool") / "cache"
MOST_ENTRIES = 512
_LIBRARIES = ("numpy", "scipy", "onnx", "onnx-ir", "onnx-shape-inference", "numba")


class Cache:
    """Metrics of planned cases in a folder that may go at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOLDER

    def get(self, key: str | None) -> Metrics | None:
        """The metrics under a key; None where there are none that can be read."""
        if key is None:
            return None
        path = self._path(key)
        try:
            document = read_document(path, SCHEMA_VERSION)
            kept, notes = document["kept"], document["notes"]
            found = Metrics.read(document, str(path))
            texts = [*kept, *kept.values(), *notes]
        except (UsageError, KeyError, AttributeError, TypeError):
            return None
        if not all(isinstance(each, str) for each in texts):
            return None
        return replace(found, kept=kept, notes=tuple(notes))

    def put(self, key: str | None, metrics: Metrics) -> None:
        """Keep metrics; what depends on the clock or was run is not kept."""
        if key is None or metrics.cut_short:
            return
        said = {"kept": dict(metrics.kept), "notes": list(metrics.notes)}
        document = {"schema_version": SCHEMA_VERSION, **metrics.document(), **said}
        with suppress(OSError):  # a folder that cannot be written to has no memory
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder.parent / ".gitignore").write_text("*\n", encoding="utf-8")
            beside = self.folder / f".{secrets.token_hex(6)}.tmp"
            beside.write_text(json.dumps(document), encoding="ascii")
            beside.replace(self._path(key))
            self._forget()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _forget(self) -> None:
        """Remove the oldest entries of too many."""
        entries = sorted(self.folder.glob("*.json"), key=lambda p: (p.stat().st_mtime, p.name))
        for path in entries[: max(len(entries) - MOST_ENTRIES, 0)]:
            path.unlink(missing_ok=True)


def key_of(case: Case) -> str | None:
    """A hash of the case, its files, gradtool and what it stands on.

    None where a file is missing, or a loss is a function whose code is not known.
    """
    if any(map(_is_path, case.gradient.get("loss", []))):
        return None
    try:
        files = [_digest(case.path), *(_digest(case.folder / path) for path in case.plan.files)]
        files += [_identity(case.path.parent / location) for location in locations(case.path)]
    except OSError:
        return None
    described: dict[str, Any] = {**case.made_for, "asked": repr(case.plan), "files": files}
    described["standing"] = _standing()
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _is_path(loss: str) -> bool:
    """Whether a loss is named as `pkg.mod:function`."""
    head, colon, _ = loss.rpartition("*")[2].partition(":")
    return bool(colon) and "." in head


def _identity(path: Path) -> str:
    """What tells whether a file of weights, too large to be read, is still the same."""
    if not path.exists():
        return f"{path.name} absent"
    status = path.stat()
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def _standing() -> list[str]:
    """Versions of all that a plan may depend on, and a hash of our own sources."""
    return [VERSION, _sources(), *_versions()]


def _versions() -> Iterator[str]:
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            yield f"{name} {metadata.version(name)}"
    for group in (RULES, KERNELS, LOSSES):
        for entry in sorted(metadata.entry_points(group=group), key=lambda e: (e.name, e.value)):
            yield f"{group} {entry.name} {entry.value} {entry.dist and entry.dist.version}"


def _sources() -> str:
    root, found = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(os.fsencode(path.relative_to(root)) + b"\0" + path.read_bytes())
    return found.hexdigest()
