"""Places of maxima kept in as few bytes as a plane takes, in place of int64 over all of x."""

from __future__ import annotations

import math

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.attributes import arguments
from gradtool.graph.composites import DOMAIN
from gradtool.ops.pool.body import place_type
from gradtool.passes.training_forms import stand_in


def narrow_places(model: ir.Model, op: Builder) -> int:
    """Replace each MaxPool whose indices serve only its gradient. Returns how many there were."""
    nodes = [n for n in walk.nodes(model.graph) if _is_narrower(n)]
    for node in nodes:
        _replace(op, node)
    return len(nodes)


def _is_narrower(node: ir.Node) -> bool:
    """Whether the indices of a node can be counted in a type smaller than theirs."""
    if node.domain not in ("", "ai.onnx") or node.op_type != "MaxPool" or len(node.outputs) < 2:
        return False
    x, indices = node.inputs[0], node.outputs[1]
    readers = {(u.node.domain, u.node.op_type, u.idx) for u in indices.uses()}
    if readers != {(DOMAIN, "MaxPoolGrad", 1)} or indices.is_graph_output():
        return False
    image = x.shape[2:] if x is not None and x.shape is not None else (None,)
    sizes = [n for n in image if isinstance(n, int)]
    return len(sizes) == len(image) and place_type(math.prod(sizes)) != ir.DataType.INT64


def _replace(op: Builder, node: ir.Node) -> None:
    """Put the composite in the place of `node`; outputs and node keep their names."""
    given = {k: v for k, v in arguments(node).items() if k != "storage_order"}
    for use in node.outputs[1].uses():
        use.node.attributes["storage_order"] = ir.AttrInt64("storage_order", 0)
    with op.at(node, stage="forward", source="", prefix=node.name or ""):
        made = op.MaxPoolTraining(node.inputs[0], **given)
    stand_in(made, node)
