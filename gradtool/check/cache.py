"""Cache of earlier measurements, by the content of all their dependences."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from gradtool.check.cases import Case
from gradtool.comparison.metrics import Metrics
from gradtool.errors import ModelError
from gradtool.io import contained
from gradtool.io.remembered import PLANS
from gradtool.plugins import KERNELS, LOSSES, RULES, entries
from gradtool.text.version import VERSION

_LIBRARIES = ("numpy", "scipy", "onnx", "onnx-ir", "onnx-shape-inference")


def get(key: str | None) -> Metrics | None:
    """The metrics under a key; None where there are none."""
    known = None if key is None else PLANS.get(key)
    if known is None:
        return None
    document = json.loads(known)
    found = Metrics.read(document, "the cache")
    return replace(found, kept=document["kept"], notes=tuple(document["notes"]))


def put(key: str | None, metrics: Metrics) -> None:
    """Keep metrics; measured ones are left out."""
    if key is not None and not metrics.cut_short:
        said = {"kept": dict(metrics.kept), "notes": list(metrics.notes)}
        PLANS.put(key, json.dumps({**metrics.document(), **said}, default=asdict).encode())


def key_of(case: Case) -> str | None:
    """The cache key of a case: its settings, its files, gradtool and the versions it stands on.

    None if a file is missing, a loss is a function of unknown code, or nothing is remembered.
    """
    if any(map(_is_path, case.gradient.get("loss", []))):
        return None
    try:
        files = [_digest(case.path), *(_digest(case.folder / path) for path in case.plan.files)]
        others = [case.folder / name for name in case.files if name not in case.plan.files]
        files += [_digest(path) for path in others if path.is_file()]
        files += [_identity(case.path.parent / location) for location in locations(case.path)]
    except OSError:
        return None
    described: dict[str, Any] = {**case.made_for, "asked": repr(case.plan), "files": files}
    described["standing"] = _standing()
    return PLANS.key(json.dumps(described, sort_keys=True).encode())


def _is_path(loss: str) -> bool:
    """Whether a loss is named as `pkg.mod:function`."""
    head, colon, _ = loss.rpartition("*")[2].partition(":")
    return bool(colon) and "." in head


def _identity(path: Path) -> str:
    """The identity of a file of weights, too large to be read: name, size, times."""
    if not path.exists():
        return f"{path.name} absent"
    status = path.stat()
    times = f"{status.st_mtime_ns} {status.st_ctime_ns}"  # the second is nobody's to set
    return f"{path.name} {status.st_size} {times}"


def _digest(path: Path) -> str:
    with contained.opened(path, own=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def _standing() -> list[str]:
    """Versions of all dependences of a plan, and a hash of our own sources."""
    return [VERSION, _sources(), *_versions()]


def _versions() -> Iterator[str]:
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            yield f"{name} {metadata.version(name)}"
    for group in (RULES, KERNELS, LOSSES):
        for entry in entries(group):
            yield f"{group} {entry.name} {entry.value} {entry.dist and entry.dist.version}"


def _sources() -> str:
    root, found = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(os.fsencode(path.relative_to(root)) + b"\0" + path.read_bytes())
    return found.hexdigest()


def locations(model: Path) -> list[str]:
    """Paths from the model's folder, each once; none where the model cannot be read.

    No path leads out of the folder.
    """
    from gradtool.io import external, read, walk

    try:
        proto = read.from_file(model)
        found = [
            external.reference(tensor, where).location
            for tensor, where in walk.tensors(proto)
            if tensor.external_data
        ]
    except ModelError:
        return []
    return list(dict.fromkeys(found))
