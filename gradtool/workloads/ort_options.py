"""How stock onnxruntime must be told to keep the clones of a file and the order of its nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from gradtool.graph.metadata import LOAD
from gradtool.passes.barrier import has_barriers, is_clone

# Each of these alone loses what recomputing saves: elimination of common subexpressions merges
# clones with the originals, the default order runs them before these, optimised nodes move to the
# end of a priority order, and the arena never gives memory back.
EXACT: Mapping[str, Any] = {
    "disabled_optimizers": ["CommonSubexpressionElimination"],
    "enable_cpu_mem_arena": False,
    "enable_mem_pattern": False,
    "execution_order": "PRIORITY_BASED",
    "graph_optimization_level": "ORT_DISABLE_ALL",
}
ENUMERATIONS = {
    "execution_order": "ExecutionOrder",
    "graph_optimization_level": "GraphOptimizationLevel",
}
ARGUMENTS = ("disabled_optimizers",)  # of the session; the rest are of its options


def needed_options(model: ir.Model) -> dict[str, Any]:
    """What keeps the memory of a model as planned: its defaults, where nothing runs twice."""
    return dict(EXACT) if any(map(is_clone, model.graph)) else {}


def how_to_load(model: ir.Model) -> str:
    """One line for people about a file's options in stock onnxruntime; empty if it needs none."""
    options = {} if has_barriers(model) else needed_options(model)
    if not options:
        return ""
    said = [f"options.{name} = {_literal(name, options[name])}" for name in _settings(options)]
    passed = [f"{name}={_literal(name, options[name])}" for name in ARGUMENTS]
    return (
        "stock onnxruntime merges recomputed nodes with the originals unless it is loaded as "
        f"InferenceSession(path, options, {', '.join(passed)}) with {', '.join(said)}; "
        "a file with barriers needs no options"
    )


def mark(model: ir.Model) -> None:
    """Note in the metadata of a model to be written which options it needs, if it does."""
    model.metadata_props.pop(LOAD, None)
    if how_to_load(model):
        model.metadata_props[LOAD] = json.dumps(needed_options(model), sort_keys=True)


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
