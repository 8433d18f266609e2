"""Sides read for comparison: a plan, the JSON of a report, a baseline, a plan file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, cast

from gradtool.comparison import Snapshot
from gradtool.comparison.footprint import all_tensors
from gradtool.comparison.metrics import Metrics, Tensor, wholes
from gradtool.errors import UsageError
from gradtool.io.documents import is_text, is_whole, read_document
from gradtool.operators.kernel_sets import LIBRARY, Kernels
from gradtool.planning.breakdown import FRAGMENTATION, held
from gradtool.planning.plan import Plan
from gradtool.workloads.names import KERNELS, current
from gradtool.workloads.plans import extra_flops, total_flops

SCHEMA_VERSIONS = (3, 2, 1)  # of baselines; of all others, and of earlier baselines
_PLAN_TOTALS = {
    "peak": "peak_bytes",
    "total": "total_bytes",
    "load": "load_bytes",
    "activations": "activation_bytes",
    "extra-flops": "extra_flops",
    "nodes": "steps",
}


def of_plan(name: str, plan: Plan, kept: Plan) -> Snapshot:
    """A plan; `kept` is the one that keeps everything."""
    from gradtool.planning.breakdown import activation_bytes

    steps = plan.program.steps
    again = Counter(step.source for step in steps if step.stage == "recompute")
    regions = {str(region): size for region, size in plan.regions(plan.peak_step).items()}
    totals = {
        "peak": plan.peak,
        "total": plan.total,
        "load": plan.peak_live,
        "activations": activation_bytes(plan),
        "flops": total_flops(plan.program),
        "extra-flops": extra_flops(plan, kept),
        "nodes": len(steps),
        "recomputed": again.total(),
    }
    return Snapshot(
        name,
        {metric: int(value) for metric, value in totals.items() if value is not None},
        {
            "region": _with_gaps(plan.peak, regions),
            "operator": held(plan, "op"),
            "node": dict(again),
        },
        all_tensors(plan),
        in_place=_in_place(plan),
        kernels=plan.program.kernels,
    )


def read_snapshots(path: str | os.PathLike[str]) -> list[Snapshot]:
    """The sides in a JSON file of ours: one, or one for each model and plan in it.

    Raises:
        UsageError: the file cannot be read, or is none that can be compared.
    """
    document = read_document(path, *SCHEMA_VERSIONS)
    try:
        found = list(_snapshots(document, PurePath(path).name))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: is damaged: {type(error).__name__} {error}") from error
    if not found:
        raise UsageError(
            f"{path}: is no report, plan or baseline of gradtool: nothing in it can be compared"
        )
    return found


def is_plan_file(path: str | os.PathLike[str]) -> bool:
    """Whether a JSON file is a plan, which says more with its model.

    Raises:
        UsageError: the file cannot be read.
    """
    return "order" in read_document(path, *SCHEMA_VERSIONS)


def _snapshots(document: Mapping[str, Any], name: str) -> Iterator[Snapshot]:
    """The sides of a document, told apart by keys of one kind only."""
    if "order" in document:
        yield _plan_file(document, name)
    elif "metrics" in document and "tensors" in document:
        yield _baseline(document, name)
    elif "cases" in document:
        for case in document["cases"]:
            if case.get("metrics"):
                totals = wholes(case["metrics"])
                yield Snapshot(str(case["case"]), totals, kernels=_kernels(case))
    else:
        for model in document.get("models", [document]):
            yield from _of_model(model)


def _of_model(model: Mapping[str, Any]) -> Iterator[Snapshot]:
    """The sides of `report --format json`, or of a table of plans."""
    if "alive" in model:
        yield _report(model)
    for plan in model.get("plans", ()):
        name = f"{model['model']} ({current(plan['plan'])})"
        yield Snapshot(name, _totals(plan), kernels=_kernels(model))


def _kernels(document: Mapping[str, Any]) -> Kernels:
    """The kernels of a planned step: numpy's by default."""
    found = document.get("kernels", "numpy")
    if found not in KERNELS:
        raise ValueError(f"its kernels are none of {', '.join(KERNELS)}")
    return cast("Kernels", found)


def _report(model: Mapping[str, Any]) -> Snapshot:
    tensors: dict[str, Tensor] = {}
    for row in model["alive"]:
        old = tensors.get(row["name"])
        size = _whole(row["bytes"])
        tensors[row["name"]] = Tensor(
            op="",
            region=str(row["region"]),
            shape=tuple(row["shape"] or ()),
            dtype=row["dtype"] or "",
            bytes=max(size, old.bytes if old else 0),
            held=size + (old.held if old else 0),
            again=0,
            also=tuple(dict.fromkeys((*(old.also if old else ()), *_also(row)))),
        )
    regions = _with_gaps(_whole(model["peak_bytes"]), wholes(model["regions"]))
    return Snapshot(
        str(model["model"]),
        _totals(model),
        {"region": regions},
        tensors,
        partial=True,
        kernels=_kernels(model),
    )


def _also(row: Mapping[str, Any]) -> list[str]:
    """The other values in the place of a reported tensor, if the report says."""
    return [name for name in row.get("also", ()) if is_text(name)]


def _plan_file(document: Mapping[str, Any], name: str) -> Snapshot:
    runs = Counter(document["order"])
    if not all(map(is_text, runs)):
        raise ValueError("its order holds something else than names")
    again = {node: times - 1 for node, times in runs.items() if times > 1}
    kernels, totals = _kernels(document), _totals(document)
    if kernels not in LIBRARY:  # else some of the nodes run as one
        totals |= {"nodes": runs.total(), "recomputed": sum(again.values())}
    return Snapshot(name, totals, {"node": again}, kernels=kernels)


def _baseline(document: Mapping[str, Any], name: str) -> Snapshot:
    metrics = Metrics.read(document, name)
    operators = {op: found.held for op, found in metrics.operators.items()}
    return Snapshot(
        str(document.get("case", name)),
        metrics.values,
        {"operator": operators},
        metrics.tensors,
        partial=metrics.left_out > 0,
        kernels=_kernels(document),
    )


def _in_place(plan: Plan) -> frozenset[str]:
    """The values in the place of another tensor."""
    values = plan.program.values
    return frozenset(values[v].name for b in plan.buffers for v in plan.also(b))


def _with_gaps(peak: int, regions: Mapping[str, int]) -> dict[str, int]:
    """Bytes by region, with gaps up to the peak."""
    return {**regions, FRAGMENTATION: peak - sum(regions.values())}


def _totals(document: Mapping[str, Any]) -> dict[str, int]:
    named = {name: document.get(key) for name, key in _PLAN_TOTALS.items()}
    return wholes(named)


def _whole(found: object) -> int:
    if not is_whole(found):
        raise ValueError("a size is no whole number")
    return found
