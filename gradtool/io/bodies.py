"""Checks of the graphs inside nodes: as many inputs and outputs as their node gives and takes."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from gradtool.errors import ModelError
from gradtool.io import walk

_SCAN_WITHOUT_BATCH = 9  # the first opset of the present Scan


def check(model: onnx.ModelProto, version: int) -> None:
    """Check every If, Loop, Scan and SequenceMap of the graph and of the local functions.

    `version` is the model's opset.

    Raises:
        ModelError: naming the node, its graph and the two numbers.
    """
    for body in walk.bodies(model):
        for node in walk.nodes(body):
            rule = RULES.get(node.op_type)
            if rule is None or walk.domain_of(node):
                continue
            if rule is not _scan or version >= _SCAN_WITHOUT_BATCH:
                rule(node)


def _graph(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    graphs: dict[str, onnx.GraphProto] = {a.name: a.g for a in node.attribute}
    return graphs[name]


def _require(node: onnx.NodeProto, what: str, found: int, needed: int, why: str) -> None:
    if found != needed:
        raise ModelError(f"{walk.label(node)}: {what}: {found}; there must be {needed}, {why}")


def _if(node: onnx.NodeProto) -> None:
    for name in ("then_branch", "else_branch"):
        branch = _graph(node, name)
        given = [value for value in branch.input if not _has_default(branch, value)]
        _require(node, f"inputs of {name}", len(given), 0, "for a branch only captures values")
        why = "the number of outputs of the node"
        _require(node, f"outputs of {name}", len(branch.output), len(node.output), why)


def _has_default(graph: onnx.GraphProto, value: onnx.ValueInfoProto) -> bool:
    return any(tensor.name == value.name for tensor in graph.initializer)


def _loop(node: onnx.NodeProto) -> None:
    body = _graph(node, "body")
    carried = max(len(node.input) - 2, 0)
    why = f"the number of the turn, the condition and the {carried} carried values"
    _require(node, "inputs of its body", len(body.input), 2 + carried, why)
    why = f"the condition and the {len(node.output)} outputs of the node"
    _require(node, "outputs of its body", len(body.output), 1 + len(node.output), why)
    _require_states(node, carried)


def _scan(node: onnx.NodeProto) -> None:
    body = _graph(node, "body")
    scanned = next(a.i for a in node.attribute if a.name == "num_scan_inputs")
    if not 1 <= scanned <= len(node.input):
        raise ModelError(
            f"{walk.label(node)}: num_scan_inputs {scanned} must be 1 to {len(node.input)}, the "
            "number of its inputs"
        )
    why = "the number of inputs of the node"
    _require(node, "inputs of its body", len(body.input), len(node.input), why)
    why = "the number of outputs of the node"
    _require(node, "outputs of its body", len(body.output), len(node.output), why)
    states = len(node.input) - scanned
    _require_states(node, states)
    made = len(node.output) - states
    for attribute in node.attribute:
        if attribute.name in ("scan_input_axes", "scan_input_directions"):
            _require(node, attribute.name, len(attribute.ints), scanned, "one for each scan input")
        if attribute.name in ("scan_output_axes", "scan_output_directions"):
            _require(node, attribute.name, len(attribute.ints), made, "one for each scan output")


def _require_states(node: onnx.NodeProto, states: int) -> None:
    if len(node.output) < states:
        raise ModelError(
            f"{walk.label(node)}: carries {states} values and has {len(node.output)} outputs; "
            "each carried value is an output"
        )


def _sequence_map(node: onnx.NodeProto) -> None:
    body = _graph(node, "body")
    why = "the number of inputs of the node"
    _require(node, "inputs of its body", len(body.input), len(node.input), why)
    why = "the number of outputs of the node"
    _require(node, "outputs of its body", len(body.output), len(node.output), why)


RULES: dict[str, Callable[[onnx.NodeProto], None]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}
