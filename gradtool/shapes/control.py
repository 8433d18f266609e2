"""Shapes of control flow: the results of loops and branches."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from gradtool.graph.branches import taken
from gradtool.graph.predicates import may_be_tensor
from gradtool.shapes.sequences import merge_values


def loop(_library: Any, ctx: Any, node: ir.Node) -> None:
    """Infer a Loop; the library's demands a condition, and takes every loop to run to its end."""
    body = node.attributes["body"].as_graph()
    carried = len(node.inputs) - 2
    most = node.inputs[0]
    count = None if most is None else ctx.get_symbolic_value(most)
    trips = count[0] if count and len(count) == 1 and _never_stops(node, body) else None
    steps = ctx.new_symbolic_dim() if trips is None else trips
    for index, (output, result) in enumerate(zip(node.outputs, body.outputs[1:], strict=True)):
        start = node.inputs[index + 2] if index < carried else None
        shape = None if start is None else merge_values(ctx, start, result)
        if not may_be_tensor(result):
            ctx.set_type(output, result.type)
            if shape is not None:
                ctx.set_shape(output, shape)
        elif result.shape is None:
            ctx.set_shape_and_dtype(output, None, result.dtype)
        elif start is not None:
            ctx.set_shape_and_dtype(output, shape, result.dtype)
        else:
            ctx.set_shape_and_dtype(output, ir.Shape([steps, *result.shape]), result.dtype)


def _never_stops(node: ir.Node, body: ir.Graph) -> bool:
    """Whether the condition is true at the start and after every turn."""
    start, after = node.inputs[1], body.outputs[0]
    while (producer := after.producer()) is not None and producer.op_type == "Identity":
        source = producer.inputs[0]
        if source is None:
            return False
        after = source
    kept = after is body.inputs[1] or _is_true(after)
    return kept and (start is None or _is_true(start))


def _is_true(value: ir.Value) -> bool:
    tensor = ir.convenience.get_const_tensor(value)
    return tensor is not None and tensor.size == 1 and bool(tensor.numpy().item())


def if_(library: Any, ctx: Any, node: ir.Node) -> None:
    """Infer an If by its live branch; the library's takes both to be possible."""
    library(ctx, node)
    branch = taken(node)
    for output, result in zip(node.outputs, branch.outputs if branch else (), strict=False):
        if result.type is not None and result.shape is not None:
            ctx.set_type(output, result.type)
            ctx.set_shape(output, result.shape)
