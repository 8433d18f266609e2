"""How stock onnxruntime must be told to keep the clones of a file and the order of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from gradtool.graph.stages import has_barriers, is_clone
from gradtool.graph.training_info import ABSENT, record

# Patterns of memory hold a second arena from the second run on; what is put in the place of a dead
# value of one size, however much later, holds that place until then.  The arena stays: without it,
# malloc takes two to four times as much (benchmarks/stock.py).
LEAN: Mapping[str, Any] = {"enable_mem_pattern": False, "enable_mem_reuse": False}

# Without barriers, each of these alone loses what recomputing saves: elimination of common
# subexpressions merges clones with the originals, the default order runs them before these, and
# optimised nodes move to the end of a priority order.
EXACT: Mapping[str, Any] = {
    **LEAN,
    "disabled_optimizers": ["CommonSubexpressionElimination"],
    "execution_order": "PRIORITY_BASED",
    "graph_optimization_level": "ORT_DISABLE_ALL",
}
ENUMERATIONS = {
    "execution_order": "ExecutionOrder",
    "graph_optimization_level": "GraphOptimizationLevel",
}
ARGUMENTS = ("disabled_optimizers",)  # of the session; the rest are of its options


def needed_options(model: ir.Model) -> dict[str, Any]:
    """Options that keep a model in stock onnxruntime as near to its plan as they can."""
    return dict(EXACT if _may_merge(model) else LEAN)


def how_to_load(model: ir.Model, *, barrier: bool = False) -> str:
    """One line for people about the options of a file in stock onnxruntime.

    It is empty where nothing is computed again.  With `barrier`, the file will have barriers.
    """
    if not any(map(is_clone, model.graph)):
        return ""
    exact = _may_merge(model) and not barrier
    options = EXACT if exact else LEAN
    said = ", ".join(f"options.{n} = {_literal(n, options[n])}" for n in _settings(options))
    if not exact:
        return f"stock onnxruntime takes least with {said}"
    passed = ", ".join(f"{name}={_literal(name, options[name])}" for name in ARGUMENTS)
    return (
        "stock onnxruntime merges recomputed nodes with the originals unless it is loaded as "
        f"InferenceSession(path, options, {passed}) with {said}; "
        "a file with barriers keeps them at any options"
    )


def mark(model: ir.Model) -> None:
    """Note in the metadata of a model to be written which options it needs, if it does."""
    needed = sorted(needed_options(model).items()) if how_to_load(model) else ()
    record(model, ort_options=dict(needed) or ABSENT)


def _may_merge(model: ir.Model) -> bool:
    """Whether common subexpression elimination would undo a recomputation."""
    return any(map(is_clone, model.graph)) and not has_barriers(model)


def session(model: str | bytes, options: Mapping[str, Any]) -> Any:
    """A session of onnxruntime on the CPU; `options` as `gradtool.load` has them."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    for name in _settings(options):
        value = options[name]
        if name in ENUMERATIONS:
            value = getattr(getattr(onnxruntime, ENUMERATIONS[name]), value)
        setattr(settings, name, value)
    passed = {name: options[name] for name in ARGUMENTS if name in options}
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model, settings, providers=providers, **passed)


def _settings(options: Mapping[str, Any]) -> list[str]:
    return [name for name in options if name not in ARGUMENTS]


def _literal(name: str, value: object) -> str:
    return f"{ENUMERATIONS[name]}.{value}" if name in ENUMERATIONS else repr(value)
