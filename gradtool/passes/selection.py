"""Which values get a gradient, and where none may flow: globs over the names of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import onnx_ir as ir

from gradtool.errors import Unreachable, UsageError
from gradtool.text import some, suggest


@dataclass(frozen=True)
class Selection:
    """The values to differentiate by, and what the user should hear about the choice."""

    wrt: tuple[ir.Value, ...]
    candidates: int
    warnings: tuple[str, ...]


def is_float(value: ir.Value) -> bool:
    """Whether a value has a floating-point type."""
    return value.dtype is not None and value.dtype.is_floating_point()


def trainable(graph: ir.Graph) -> list[ir.Value]:
    """Float initializers that are parameters.

    Not parameters: running statistics of BatchNormalization, quantisation scales, and scalars
    (exporters write plain numbers so); each can still be asked for by name.
    """
    return [
        v
        for v in graph.initializers.values()
        if is_float(v) and len(v.shape or ()) > 0 and not _is_state(v)
    ]


_STATE = {
    "BatchNormalization": (3, 4),
    "QuantizeLinear": (1, 2),
    "DequantizeLinear": (1, 2),
    "Resize": (1, 2, 3),
}


def _is_state(value: ir.Value) -> bool:
    uses = list(value.uses())
    return bool(uses) and all(u.idx in _STATE.get(u.node.op_type, ()) for u in uses)


def select(
    graph: ir.Graph,
    patterns: Sequence[str] | None,
    input_patterns: Sequence[str],
    no_grad: Sequence[str],
    reaches: Callable[[ir.Value], bool],
) -> Selection:
    """Resolve `--wrt`, `--input-grad` and `--no-grad` against a graph.

    Raises:
        UsageError: a pattern matches nothing.
        Unreachable: a value asked for by its name does not influence the loss.
    """
    warnings: list[str] = []
    inputs = [v for v in graph.inputs if is_float(v) and not v.is_initializer()]
    leaves = {v.name or "": v for v in (*graph.initializers.values(), *graph.inputs) if is_float(v)}
    chosen: dict[ir.Value, bool] = {}
    if patterns is None:
        default = trainable(graph)
        if not default:
            default = inputs
            warnings.append("no trainable parameter: differentiating by the float inputs")
        scalars = [v for v in graph.initializers.values() if is_float(v) and not len(v.shape or ())]
        if scalars and default is not inputs and any(reaches(v) for v in scalars):
            names = some(v.name or "" for v in scalars if reaches(v))
            warnings.append(f"scalars taken as constants (ask by --wrt NAME): {names}")
        chosen = dict.fromkeys(default, False)
    else:
        for pattern in patterns:
            chosen |= _matches(pattern, leaves, _interior(graph), "--wrt")
    for pattern in input_patterns:
        chosen |= _matches(pattern, {v.name or "": v for v in inputs}, {}, "--input-grad")
    excluded = cut(graph, no_grad)
    wanted = {v: named for v, named in chosen.items() if v not in excluded}
    lost = [v for v in wanted if not reaches(v)]
    by_name = [v.name or "" for v in lost if wanted[v]]
    if by_name:
        raise Unreachable(
            f"the loss does not depend on {some(by_name)}; leave it out, or choose another --loss"
        )
    if lost:
        names = some(v.name or "" for v in lost)
        warnings.append(f"left out, the loss does not depend on them: {names}")
    wrt = tuple(v for v in wanted if v not in lost)
    if not wrt:
        raise Unreachable("the loss depends on no value to differentiate by; see --wrt, --loss")
    return Selection(wrt, len(wanted), tuple(warnings))


def cut(graph: ir.Graph, patterns: Iterable[str]) -> frozenset[ir.Value]:
    """The values that `--no-grad` patterns name: values, or `NODE:INDEX` for a node's output."""
    everything = {v.name or "": v for v in (*graph.inputs, *graph.initializers.values())}
    everything |= _interior(graph)
    for node in graph:
        everything |= {f"{node.name}:{i}": v for i, v in enumerate(node.outputs)}
    found: set[ir.Value] = set()
    for pattern in patterns:
        found |= set(_matches(pattern, everything, {}, "--no-grad"))
    return frozenset(found)


def _interior(graph: ir.Graph) -> dict[str, ir.Value]:
    return {v.name: v for n in graph for v in n.outputs if v.name}


def _matches(
    pattern: str, names: dict[str, ir.Value], also_exact: dict[str, ir.Value], flag: str
) -> dict[ir.Value, bool]:
    """The values of a pattern; True where it is the exact name."""
    exact = names.get(pattern) or also_exact.get(pattern)
    if exact is not None:
        return {exact: True}
    found = {v: False for name, v in names.items() if fnmatchcase(name, pattern)}
    if not found:
        known = list(names)
        raise UsageError(
            f"{flag} {pattern}: no such value{suggest(pattern, (*known, *also_exact))}"
            + ("" if suggest(pattern, known) else f" (there are {some(known, 5)})")
        )
    return found
