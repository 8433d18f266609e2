"""Which values get a gradient, and where none may flow: globs over the names of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fnmatch import fnmatchcase

import onnx_ir as ir

from gradtool.errors import Unreachable, UsageError
from gradtool.graph.predicates import is_float, is_tensor
from gradtool.passes.merged import merged
from gradtool.passes.parameters import parameters
from gradtool.text.words import some, suggest


@dataclass(frozen=True)
class Selection:
    """The values to differentiate by, and what the user should hear about the choice."""

    wrt: tuple[ir.Value, ...]
    candidates: int
    warnings: tuple[str, ...]


def select(
    graph: ir.Graph,
    leaves: Sequence[ir.Value],
    patterns: Sequence[str] | None,
    input_patterns: Sequence[str],
    *,
    reaches: AbstractSet[ir.Value],
    flows: AbstractSet[ir.Value],
    barred: AbstractSet[ir.Value],
) -> Selection:
    """Resolve `--wrt` and `--input-grad` against a graph.

    Globs choose among `leaves`, the initializers and inputs that the model came with.  The loss
    depends on the values of `reaches`, and on those of `flows` without passing through the values
    of `barred`, which `--no-grad` names.  What `barred` cuts off is left out.

    Raises:
        UsageError: a pattern matches nothing, or `--no-grad` cuts off a value asked for by name.
        Unreachable: a value asked for by its name does not influence the loss.
    """
    chosen, warnings = _chosen(graph, leaves, patterns, input_patterns, reaches)
    wanted = {v: named for v, named in chosen.items() if v not in barred}
    lost = [v for v in wanted if v not in reaches]
    by_name = [v.name or "" for v in lost if wanted[v]]
    if by_name:
        raise Unreachable(
            f"the loss does not depend on {some(by_name)}; leave it out, or choose another --loss"
        )
    if lost:
        names = some(v.name or "" for v in lost)
        warnings.append(f"left out, the loss does not depend on them: {names}")
    cut_off = [v for v in wanted if v in reaches and v not in flows]
    by_name = [v.name or "" for v in cut_off if wanted[v]]
    wrt = tuple(v for v in wanted if v in flows)
    if by_name or (cut_off and not wrt):
        names = some(by_name or [v.name or "" for v in cut_off])
        raise UsageError(f"--no-grad cuts every path from the loss to {names}")
    if not wrt:
        raise Unreachable("the loss depends on no value to differentiate by; see --wrt, --loss")
    return Selection(wrt, len(wanted), tuple(warnings))


def _chosen(
    graph: ir.Graph,
    leaves: Sequence[ir.Value],
    patterns: Sequence[str] | None,
    input_patterns: Sequence[str],
    reaches: AbstractSet[ir.Value],
) -> tuple[dict[ir.Value, bool], list[str]]:
    """The values asked for (True where by name, False where by a glob), and warnings."""
    warnings: list[str] = []
    floats = {v.name or "": v for v in leaves if is_float(v) and is_tensor(v)}
    inputs = {name: v for name, v in floats.items() if not v.is_initializer()}
    chosen: dict[ir.Value, bool] = {}
    if patterns is None:
        found = parameters(graph, leaves)
        warnings += found.warnings(reaches)
        warnings += merged(v for v in found.values if v in reaches)
        if not found.values:
            warnings.append("no trainable parameter: differentiating by the float inputs")
        chosen = dict.fromkeys(found.values or inputs.values(), False)
    everything = _everything(graph) if patterns else {}
    for pattern in patterns or ():
        _extend(chosen, _matches(pattern, floats, everything, "--wrt"))
    for pattern in input_patterns:
        _extend(chosen, _matches(pattern, inputs, {}, "--input-grad"))
    for value in chosen:
        if not is_float(value):
            raise UsageError(f"{value.name!r} is {value.dtype}: only floats have gradients")
    return chosen, warnings


def _extend(chosen: dict[ir.Value, bool], found: dict[ir.Value, bool]) -> None:
    """Add values; one that was asked for by name stays so."""
    for value, named in found.items():
        chosen[value] = named or chosen.get(value, False)


def cut(graph: ir.Graph, patterns: Iterable[str]) -> frozenset[ir.Value]:
    """The values that `--no-grad` patterns name: values, or `NODE:INDEX` for a node's output."""
    everything = _everything(graph)
    for node in graph:
        everything |= {f"{node.name}:{i}": v for i, v in enumerate(node.outputs)}
    found: set[ir.Value] = set()
    for pattern in patterns:
        found |= set(_matches(pattern, everything, {}, "--no-grad"))
    return frozenset(found)


def _everything(graph: ir.Graph) -> dict[str, ir.Value]:
    values = {v.name or "": v for v in (*graph.inputs, *graph.initializers.values())}
    return values | {v.name: v for n in graph for v in n.outputs if v.name}


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
