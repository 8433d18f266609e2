"""Selection of values to differentiate by, and stops of gradients: globs over a graph's names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fnmatch import fnmatchcase

import onnx_ir as ir

from gradtool.errors import Unreachable, UsageError
from gradtool.graph.predicates import is_float
from gradtool.passes.parameters import Role, Roles, among, untrained
from gradtool.passes.untie_initializers import merged
from gradtool.text.words import some, suggest


@dataclass(frozen=True)
class Selection:
    """The values to differentiate by, and warnings about the choice.

    No gradient reaches values `cut_off` from the loss.
    """

    wrt: tuple[ir.Value, ...]
    candidates: int
    warnings: tuple[str, ...]
    cut_off: frozenset[ir.Value]


def select(
    graph: ir.Graph,
    roles: Roles,
    patterns: Sequence[str] | None,
    input_patterns: Sequence[str],
    *,
    reaches: AbstractSet[ir.Value],
    flows: AbstractSet[ir.Value],
    barred: frozenset[ir.Value],
) -> Selection:
    """Resolve `--wrt` and `--input-grad` against a graph.

    Globs choose trainable values, and inputs, among the `roles` of those the model came with; full
    names may be those of any float that has a gradient.  The loss depends on the values of
    `reaches`, and on those of `flows` without passing through the values of `barred`, which
    `--no-grad` names.  Values cut off by `barred` are left out.

    Raises:
        UsageError: a pattern matches nothing that can be meant, or `--no-grad` cuts off a value
            asked for by name.
        Unreachable: a value asked for by its name does not influence the loss.
    """
    chosen, warnings = _chosen(graph, roles, patterns, input_patterns, reaches)
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
    lacking = barred.union(reaches - flows) if barred else barred
    return Selection(wrt, len(wanted), tuple(warnings), lacking)


def _chosen(
    graph: ir.Graph,
    roles: Roles,
    patterns: Sequence[str] | None,
    input_patterns: Sequence[str],
    reaches: AbstractSet[ir.Value],
) -> tuple[dict[ir.Value, bool], list[str]]:
    """The chosen values (True by name, False by a glob), and warnings."""
    warnings: list[str] = []
    chosen: dict[ir.Value, bool] = {}
    if patterns is None:
        found = among(roles, Role.PARAMETER)
        warnings += untrained(roles, reaches)
        warnings += merged(v for v in found if v in reaches)
        if not found:
            warnings.append("no trainable parameter: differentiating by the float inputs")
        chosen = dict.fromkeys(found or among(roles, Role.INPUT), False)
    everything = _everything(graph) if patterns else {}
    for pattern in patterns or ():
        _extend(chosen, _matches(pattern, roles, everything, "--wrt", globs=False))
    inputs = {v: each for v, each in roles.items() if not v.is_initializer()}
    for pattern in input_patterns:
        _require_input(pattern, inputs, roles)
        _extend(chosen, _matches(pattern, inputs, {}, "--input-grad", globs=False))
    return chosen, warnings


def _require_input(pattern: str, inputs: Roles, roles: Roles) -> None:
    """Refuse a pattern of initializers alone."""
    found = [v for v in roles if v.name == pattern or fnmatchcase(v.name or "", pattern)]
    if found and not any(v in inputs for v in found):
        names = some((v.name or "" for v in found), 5)
        raise UsageError(f"--input-grad {pattern}: no input; --wrt is for initializers: {names}")


def _extend(chosen: dict[ir.Value, bool], found: dict[ir.Value, bool]) -> None:
    """Add values; one that was asked for by name stays so."""
    for value, named in found.items():
        chosen[value] = named or chosen.get(value, False)


def cut(graph: ir.Graph, roles: Roles, patterns: Iterable[str]) -> frozenset[ir.Value]:
    """The values named by `--no-grad` patterns: values, or `NODE:INDEX` for a node's output.

    A glob is of nodes where it has a colon: `head.*` are values of these names.

    Raises:
        UsageError: a pattern matches nothing, or only values without a gradient.
    """
    values = _everything(graph)
    results = {f"{node.name}:{i}": v for node in graph for i, v in enumerate(node.outputs)}
    found: set[ir.Value] = set()
    for pattern in patterns:
        others = values | results if ":" in pattern else values
        found |= set(_matches(pattern, roles, others, "--no-grad", globs=True))
    return frozenset(found)


def _everything(graph: ir.Graph) -> dict[str, ir.Value]:
    values = {v.name or "": v for v in (*graph.inputs, *graph.initializers.values())}
    return values | {v.name: v for n in graph for v in n.outputs if v.name}


def _matches(
    pattern: str, roles: Roles, others: dict[str, ir.Value], flag: str, *, globs: bool
) -> dict[ir.Value, bool]:
    """The values of a pattern; True where it is the exact name.

    Beside values with a role it may be the name of `others`, or with `globs` match those as well.
    """
    names = {v.name or "": v for v in roles}
    exact = names.get(pattern) or others.get(pattern)
    if exact is not None:
        require_meant(pattern, exact, roles, flag)
        return {exact: True}
    known = names | others if globs else names
    matched = {name: v for name, v in known.items() if fnmatchcase(name, pattern)}
    found = {v: False for v in matched.values() if _role(v, roles).is_open}
    if found:
        return found
    if matched:
        raise UsageError(f"{flag} {pattern}: {nothing_meant(matched.values(), roles)}")
    near = suggest(pattern, (*names, *others))
    listed = "" if suggest(pattern, names) else f" (there are {some(names, 5)})"
    raise UsageError(f"{flag} {pattern}: no such value{near}{listed}")


def _role(value: ir.Value, roles: Roles) -> Role:
    """The role of a value that the model came with; an inner one is open if it is a float."""
    inside = Role.INPUT if is_float(value) else Role.INTEGER
    return roles.get(value, inside)


def require_meant(name: str, value: ir.Value, roles: Roles, flag: str) -> None:
    """Refuse a full name of a value without a gradient.

    Raises:
        UsageError: with the reason.
    """
    role = _role(value, roles)
    if not role.is_named:
        raise UsageError(f"{flag} {name}: {value.name!r} is {role.said(value)}")


def nothing_meant(values: Iterable[ir.Value], roles: Roles) -> str:
    """The reason why a glob that matches these values takes none of them."""
    found = {v: _role(v, roles) for v in values}
    named = [v.name or "" for v, role in found.items() if role.is_named]
    listed = some((f"{v.name} ({role.brief(v)})" for v, role in found.items()), 5)
    hint = f"; give the full name of {some(named, 5)} if that is meant" if named else ""
    return f"a glob takes none of what it matches: {listed}{hint}"
