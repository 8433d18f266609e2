"""CastLike written as Cast, for runtimes that know CastLike by its definition only.

Stock onnxruntime puts the definition in its place, at the end of the nodes: its readers are then
behind all other nodes, in an order by the places of nodes in the file.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.attributes import attribute


def plain_casts(model: ir.Model) -> int:
    """Turn each CastLike to a known type into a Cast, in place. Returns their number."""
    nodes = [node for node in walk.nodes(model.graph) if _target(node) is not None]
    for node in nodes:
        node.attributes.add(attribute("to", _target(node)))
        node.op_type = "Cast"
        node.resize_inputs(1)
    return len(nodes)


def _target(node: ir.Node) -> ir.DataType | None:
    """The target type of a CastLike, if known."""
    if node.op_type != "CastLike" or node.domain not in ("", "ai.onnx"):
        return None
    like = node.inputs[1]
    return None if like is None else like.dtype
