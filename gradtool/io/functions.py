"""Local functions of a file, inlined before anything else looks at the graph."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from gradtool.errors import ModelError
from gradtool.io.limits import DEFAULT, Limits


def inline_functions(
    model: ir.Model, keep: Callable[[str, str], bool], limits: Limits = DEFAULT
) -> None:
    """Replace every call of a local function by its body, except where `keep(domain, name)`.

    Raises:
        ModelError: functions call each other in a circle, or too deep, or expand to too many nodes.
    """
    if not model.functions:
        return
    check_expansion(model, limits)
    try:
        InlinePass(criteria=lambda function: not keep(function.domain, function.name))(model)
    except (ValueError, KeyError, TypeError, ir.passes.PassError) as error:
        reason = " ".join(str(error.__cause__ or error).split())[:200]
        raise ModelError(f"local functions cannot be inlined: {reason}") from error


def check_expansion(model: ir.Model, limits: Limits) -> None:
    """Refuse recursion, and expansion past the limits, without expanding anything."""
    totals: dict[ir.OperatorIdentifier, int] = {}

    def total(key: ir.OperatorIdentifier, depth: int) -> int:
        if depth > limits.call_depth:
            raise ModelError(
                f"local function {key[1]!r} is called more than {limits.call_depth} calls deep, "
                "or calls itself"
            )
        if key not in totals:
            totals[key] = count(model.functions[key], depth)
        return totals[key]

    def count(body: ir.Graph | ir.Function, depth: int) -> int:
        nodes = 0
        for node in body.all_nodes():
            key = node.op_identifier()
            nodes += total(key, depth + 1) if key in model.functions else 1
        if nodes > limits.expanded_nodes:
            raise ModelError(
                f"local functions expand to more than {limits.expanded_nodes} nodes"
            )
        return nodes

    for key in model.functions:
        total(key, 0)
    count(model.graph, 0)
