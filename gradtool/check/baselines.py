"""Baselines: one small JSON file a case, the same bytes on every machine.

Two branches that record different cases touch different files, and within a file a tensor is a
line.  There are integers and names in it: no time, no path, nothing measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradtool.check.cases import Case, MadeFor
from gradtool.comparison.metrics import Metrics, MetricsRecord
from gradtool.errors import GradtoolError, SystemErrors, UsageError
from gradtool.io import contained, folders
from gradtool.io.documents import read_document
from gradtool.workloads.names import current

SCHEMA_VERSION = 3
_VERSIONS = (1, 2, SCHEMA_VERSION)  # the first knew numpy's kernels alone
SUFFIX = ".json"
CUT_SHORT = "its plan was cut short by time, so it is no baseline: plan it without a time limit"


class BaselineDocument(MadeFor, MetricsRecord):
    """A case as it was recorded: integers and names."""

    case: str


@dataclass(frozen=True)
class Baseline:
    """The recorded metrics of a case, and its `made_for` then: plan, kernels, sizes, options."""

    metrics: Metrics
    made_for: Mapping[str, Any]
    version: int = SCHEMA_VERSION

    @property
    def is_former(self) -> bool:
        """Whether numpy's kernels were the default when it was recorded."""
        return self.version < SCHEMA_VERSION


def path_of(folder: Path, case: Case) -> Path:
    """The file of a case."""
    return folder / f"{case.slug}{SUFFIX}"


def read(folder: Path, case: Case) -> Baseline | None:
    """The baseline of a case; None if there is none.

    Raises:
        UsageError: the file is there and no baseline.
    """
    path = path_of(folder, case)
    with SystemErrors(path):
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder}: is no folder, so there are no baselines in it")
        if not os.path.lexists(path):
            return None
    document = _document(path)
    metrics = Metrics.read(document, str(path))
    version = document["schema_version"]
    document.setdefault("kernels", "numpy")
    made_for = {key: document.get(key) for key in case.made_for}
    return Baseline(metrics, {**made_for, "plan": current(str(made_for["plan"]))}, version)


def _document(path: Path) -> dict[str, Any]:
    try:
        return read_document(path, *_VERSIONS, own=True)
    except UsageError as error:
        if isinstance(error.__cause__, OSError):
            raise
        raise UsageError(f"{error}; write it anew with --update") from error


def text(case: Case, metrics: Metrics) -> str:
    """The bytes of a baseline, in ASCII: keys sorted, a line for each tensor and operator."""
    recorded: BaselineDocument = {"case": case.name, **case.made_for, **metrics.document()}
    document = {"schema_version": SCHEMA_VERSION, **recorded}
    lines = []
    for key in sorted(document):
        value = document[key]
        if isinstance(value, dict) and value:
            rows = (f"  {_json(name)}: {_json(value[name])}" for name in sorted(value))
            lines.append(f" {_json(key)}: {{\n" + ",\n".join(rows) + "\n }")
        else:
            lines.append(f" {_json(key)}: {_json(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write(folder: Path, found: Iterable[tuple[Case, Metrics]]) -> list[Case]:
    """Record cases; returns those whose file changed.

    Raises:
        GradtoolError: a plan was cut short by the clock: on another machine it may be another one.
        UsageError: a file cannot be written.
    """
    changed, files = [], {}
    for case, metrics in found:
        if metrics.cut_short:
            raise GradtoolError(f"case {case.name!r}: {CUT_SHORT}")
        path, data = path_of(folder, case), text(case, metrics).encode("ascii")
        if _bytes(path) != data:
            changed.append(case)
            files[path.name] = data
    if files:
        folders.write(folder, files)
    return changed


def is_recorded(folder: Path, case: Case) -> bool:
    """Whether there is a baseline of a case."""
    return _bytes(path_of(folder, case)) is not None


def _bytes(path: Path) -> bytes | None:
    try:
        with contained.opened(path) as file:
            return file.read()
    except OSError:
        return None


def orphans(folder: Path, cases: Iterable[Case]) -> list[str]:
    """Files in the folder of baselines without a case."""
    known = {path_of(folder, case).name for case in cases}
    return sorted(path.name for path in folder.glob(f"*{SUFFIX}") if path.name not in known)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False, default=asdict)
