"""A model for chosen values only: they become its outputs, and the rest is pruned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.prune import prune
from gradtool.graph.training_info import Names, TrainingInfo
from gradtool.text.words import some, suggest


def has_values(model: ir.Model, patterns: Iterable[str]) -> bool:
    """Whether each pattern matches a value of the model."""
    names = _names(model.graph)
    return all(_matches(pattern, names) for pattern in patterns)


def fetch(model: ir.Model, patterns: Sequence[str]) -> ir.Model:
    """A copy of a model with the matching values as outputs, and with nothing else.

    An exact name wins over reading it as a glob, and may be that of an input or a weight; globs
    match results of nodes.  Metadata keeps the gradients, states and loss that are still computed.

    Raises:
        UsageError: a pattern matches nothing.
    """
    model = model.clone()
    graph = model.graph
    names = _names(graph)
    chosen: dict[str, ir.Value] = {}
    for pattern in patterns:
        found = _matches(pattern, names)
        if not found:
            known = [n for n in names if n]
            raise UsageError(
                f"--fetch {pattern}: no such value{suggest(pattern, known)}"
                + ("" if suggest(pattern, known) else f" (there are {some(known, 5)})")
            )
        chosen |= {name: names[name] for name in found}
    graph.outputs.clear()
    graph.outputs.extend(_results(model, chosen))
    prune(model)
    read = [v for v in graph.inputs if v.uses()]
    graph.inputs.clear()
    graph.inputs.extend(read)
    prune(model)
    _tell(model, {v.name or "" for v in graph.outputs}, {v.name or "" for v in read})
    return model


def _names(graph: ir.Graph) -> dict[str, ir.Value]:
    leaves = (*graph.inputs, *graph.initializers.values())
    return {v.name or "": v for v in (*leaves, *(v for n in graph for v in n.outputs)) if v.name}


def _matches(pattern: str, names: dict[str, ir.Value]) -> list[str]:
    if pattern in names:
        return [pattern]
    return [n for n, v in names.items() if v.producer() is not None and fnmatchcase(n, pattern)]


def _results(model: ir.Model, chosen: dict[str, ir.Value]) -> list[ir.Value]:
    """The values as results of nodes: an input or a weight is copied and takes the name along."""
    op = Builder(model, stage="forward")
    results = []
    for name, value in chosen.items():
        result = value
        if value.producer() is None:
            result = op.Identity(value)
            result.name = f"{name}:value"
        results.append(result)
    return results


def _tell(model: ir.Model, outputs: set[str], inputs: set[str]) -> None:
    """Update the metadata to the remaining values."""
    info = TrainingInfo.of(model)
    replace(
        info,
        loss=info.loss if info.loss in outputs else None,
        gradients=_among(outputs, info.gradients),
        state=_among(outputs, info.state) if info.state else info.state,
        buffers=_among(inputs, info.buffers) if info.buffers else info.buffers,
    ).write(model)


def _among(there: set[str], names: Names) -> Names:
    return {name: value for name, value in names.items() if value in there}
