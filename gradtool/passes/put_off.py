"""What backward puts off waits: runtimes compute it when its operands are there, and hold it.

A plan computes a weight gradient that is larger than its operands as late as it can.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.metadata import BARRIER
from gradtool.graph.reads import reads
from gradtool.passes._waiting import (
    before,
    depths_of,
    is_backward,
    may_pass,
    may_wait,
    passing,
    zero_of,
)


def hold_back(model: ir.Model) -> None:
    """Let each node of backward wait for the deepest gradient before it, in place.

    Nodes that depend on this, or read nothing large, run when they are due whatever happens.
    """
    op, depths = Builder(model), depths_of(model.graph)
    nodes = list(model.graph)
    places = {value: place for place, node in enumerate(nodes) for value in node.outputs}
    deepest: ir.Value | None = None
    zero: ir.Value | None = None
    for node in nodes:
        if not is_backward(node) or BARRIER in node.metadata_props:
            continue
        able = [v for v in node.inputs if v is not None and v in depths and may_pass(v)]
        last = max((places.get(v, -1) for v in reads(node) if v in depths), default=-1)
        if deepest is not None and able and may_wait(node) and last < places[deepest]:
            with before(op, node, [deepest]):
                zero = zero_of(op, [deepest]) if zero is None else zero
                same = passing(op, able[0], zero)
            node.replace_input_with(node.inputs.index(able[0]), same)
        for value in node.outputs:
            is_deeper = deepest is None or depths.get(value, -1) >= depths[deepest]
            if value in depths and may_pass(value) and is_deeper:
                deepest, zero = value, None
