"""Scheduling edges for runtimes that order nodes anew, and run some too early, others too late.

Constants that only backward reads wait for the gradient before them: zeros to add to, weights
turned round.  The gradient that backward goes on with waits for the results before it: runtimes put
these off, and hold their operands.  Forward waits for smaller values made for backward alone, masks
and places: else these are made in backward, of large ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.metadata import BARRIER, STAGE
from gradtool.graph.predicates import is_float, may_be_tensor
from gradtool.graph.reads import reads
from gradtool.passes.ort_allocator.control_edges import (
    LAYOUTS,
    behind,
    bytes_of,
    depths_of,
    is_backward,
    is_large,
    may_pass,
    may_wait,
)


def hold_constants(model: ir.Model) -> None:
    """Let backward's results from constants and weights alone wait for the gradient before them.

    Zeros to add to, weights turned round: runtimes fold them when they load a file, and hold them
    from then on, or compute them first of all.
    """
    op, depths = Builder(model), depths_of(model.graph)
    deepest: ir.Value | None = None
    for node in list(model.graph):
        if BARRIER in node.metadata_props:
            continue
        if deepest is not None and _is_made_of_constants(node, depths):
            value = node.inputs[0]
            assert value is not None  # noqa: S101 - it is a constant
            node.replace_input_with(0, behind(op, node, value, [deepest]))
            depths |= dict.fromkeys(node.outputs, 0)
        elif any(v in depths for v in reads(node)) and node.op_type not in ("Shape", "Size"):
            depths |= {v: depths.get(v, 0) for v in node.outputs}
        backward = node.metadata_props.get(STAGE) not in (None, "forward")
        able = [v for v in node.outputs if v in depths and is_float(v) and may_be_tensor(v)]
        if backward and able and (deepest is None or depths[able[0]] >= depths[deepest]):
            deepest = able[0]


def hold_gradients(model: ir.Model) -> None:
    """Let the deepest gradient pass a barrier wherever results were computed since the last one.

    Layouts do not wait, nor is anything read through a barrier that a layout made: onnxruntime
    merges them.
    """
    op, depths = Builder(model), depths_of(model.graph)
    nodes = list(model.graph)
    places = {node: place for place, node in enumerate(nodes)}
    results: list[ir.Value] = []
    deepest: ir.Value | None = None
    for node in nodes:
        if not is_backward(node) or BARRIER in node.metadata_props:
            continue
        reads_it = deepest is not None and deepest in node.inputs
        if results and reads_it and node.op_type not in LAYOUTS:
            assert deepest is not None  # noqa: S101 - the node reads it
            readers = [
                use for use in deepest.uses()
                if places.get(use.node, -1) >= places[node] and may_wait(use.node)
            ]  # fmt: skip
            same = behind(op, node, deepest, results)
            for use in readers:
                use.node.replace_input_with(use.idx, same)
            results, deepest = [], None
        able = [v for v in node.outputs if v in depths and is_float(v) and may_be_tensor(v)]
        results += [v for v in able if v.is_graph_output()]
        for value in able:
            if may_pass(value) and (deepest is None or depths[value] >= depths[deepest]):
                deepest = value


def hold_forward(model: ir.Model) -> None:
    """Let forward pass a barrier after it has made something smaller for backward alone."""
    op, depths = Builder(model), depths_of(model.graph)
    kept: list[ir.Value] = []
    for node in list(model.graph):
        if not _is_forward(node) or not may_wait(node):
            continue
        passed = [v for v in node.inputs if v is not None and v in depths and may_pass(v)]
        if kept and passed and _goes_on(node):
            same = behind(op, node, passed[0], kept)
            node.replace_input_with(node.inputs.index(passed[0]), same)
            kept = []
        if _is_kept(node):
            kept.append(node.outputs[0])


def _is_kept(node: ir.Node) -> bool:
    """Whether a node makes a smaller value for backward alone."""
    value = node.outputs[0]
    if not may_be_tensor(value) or not value.uses() or _goes_on(node):
        return False
    largest = max((bytes_of(v) for v in node.inputs if v is not None), default=0)
    return is_large(value) and bytes_of(value) < largest


def _goes_on(node: ir.Node) -> bool:
    """Whether forward reads a node's result, or it is returned."""
    return any(
        v.is_graph_output() or any(_is_forward(use.node) for use in v.uses()) for v in node.outputs
    )


def _is_forward(node: ir.Node) -> bool:
    return node.metadata_props.get(STAGE) in (None, "forward")


def _is_made_of_constants(node: ir.Node, depths: Mapping[ir.Value, int]) -> bool:
    """Whether a node after forward makes something large of constants and weights."""
    if node.metadata_props.get(STAGE) in (None, "forward") or node.op_type in LAYOUTS:
        return False
    if not node.inputs or node.inputs[0] is None or not may_be_tensor(node.inputs[0]):
        return False
    if any(v in depths for v in reads(node)):
        return False
    return any(map(is_large, node.outputs))
