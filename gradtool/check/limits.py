"""Models held against limits in a few lines of Python: the core of the pytest plugin."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtool.check import METRICS, Judged, Metrics, Outcome, Rules, judge, measure
from gradtool.check.config.cases import KEYS, cases_of
from gradtool.check.sentences import explanation
from gradtool.errors import UsageError
from gradtool.text.names import escape, shorten
from gradtool.text.units import format_bytes
from gradtool.text.words import suggest

if TYPE_CHECKING:
    import onnx

    from gradtool.check import Case
    from gradtool.workloads.rewritten import Graph

LONGEST = 60  # characters of a name
SHOWN = 5  # tensors below a failure


def over_limits(
    model: str | os.PathLike[str] | onnx.ModelProto | Graph,
    arguments: Mapping[str, Any],
    root: Path,
    *,
    required: bool = False,
) -> tuple[list[Metrics], list[str]]:
    """The metrics of a model at each size asked for, and lines about the limits exceeded.

    `arguments` are keys of a case, with `_` for `-`, and metrics with their limits.  Paths start
    at `root`.

    Raises:
        GradtoolError: an argument is none of these, there is no limit where one is `required`, or
            the model cannot be planned.
    """
    found: list[Metrics] = []
    lines: list[str] = []
    with _file_of(model) as path:
        for case in _cases(path, arguments, root):
            if required and not case.limit:
                raise UsageError(
                    f"grad_memory: nothing to check: give a limit, as in peak='2GiB'; there are "
                    f"{', '.join(METRICS)}"
                )
            metrics = measure(case, run=any(METRICS[metric].measured for metric in case.limit))
            judged = judge(case, Outcome(metrics), None, Rules(allow_new=True))
            found.append(metrics)
            lines += _lines(judged, metrics) if judged.failed else []
    return found, lines


def _cases(path: str, arguments: Mapping[str, Any], root: Path) -> list[Case]:
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    limits = {key: value for key, value in named.items() if key in METRICS}
    table = {key: value for key, value in named.items() if key not in METRICS}
    for key in table:
        if key not in KEYS:
            hint = suggest(key, [*METRICS, *KEYS]) or f"; there are {', '.join([*METRICS, *KEYS])}"
            raise UsageError(f"grad_memory: unknown argument {key!r}{hint}")
    written = table.get("limit", {})
    if isinstance(written, dict):
        table["limit"] = {**written, **limits}
    table = {"name": Path(path).stem, **table, "model": path}
    cases = cases_of(table, Path("grad_memory"), 1, 1, ())
    return [replace(case, folder=root) for case in cases]


@contextmanager
def _file_of(model: Any) -> Iterator[str]:
    """The path of a model, written temporarily if it has none."""
    if isinstance(model, (str, os.PathLike)):
        yield os.fspath(model)
        return
    with tempfile.TemporaryDirectory(prefix="gradtool-") as folder:
        path = Path(folder) / "model.onnx"
        _write(model, path)
        yield str(path)


def _write(model: Any, path: Path) -> None:
    import onnx
    import onnx_ir as ir

    from gradtool.workloads.export import save
    from gradtool.workloads.rewritten import Rewritten
    from gradtool.workloads.training import TrainingGraph

    if isinstance(model, onnx.ModelProto):
        path.write_bytes(model.SerializeToString())
    elif isinstance(model, (ir.Model, TrainingGraph, Rewritten)):
        save(model, path)
    else:
        raise UsageError(
            f"grad_memory: {type(model).__name__!r} is no model: give a path, an "
            "onnx.ModelProto or a graph of gradtool"
        )


def _lines(judged: Judged, metrics: Metrics) -> Iterator[str]:
    """The broken limits, and the largest tensors at the peak."""
    name = judged.case.name
    for sentence in explanation(judged):
        yield f"{name}: {escape(sentence)}"
    largest = sorted(metrics.tensors.items(), key=lambda pair: (-pair[1].held, pair[0]))
    for tensor, each in largest[:SHOWN]:
        shape = f"{each.dtype}[{'x'.join(map(str, each.shape))}]" if each.dtype else ""
        parts = [format_bytes(each.held), "at the peak:", shorten(escape(tensor), LONGEST), shape]
        yield "  " + " ".join(part for part in (*parts, each.op) if part)
