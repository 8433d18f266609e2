"""Quantisation that gradients pass straight through: pairs of operators become one composite.

A gradient can't be a value of 8 bits.  So where QuantizeLinear and DequantizeLinear follow each
other with the same scale, they are replaced by `FakeQuantize`, from float to float, whose body is
the pair again.  The scale that DynamicQuantizeLinear measures is taken as a constant.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.attributes import arguments
from gradtool.graph.prune import prune


def straight_through(model: ir.Model, op: Builder) -> int:
    """Replace the pairs in place. Returns how many there were."""
    for node in [n for n in model.graph if n.op_type == "DynamicQuantizeLinear" and not n.domain]:
        _measure_apart(op, node)
    pairs = [(n, q) for n in model.graph if (q := _quantizer(n)) is not None]
    for node, quantizer in pairs:
        _replace(op, quantizer, node)
    if pairs:
        prune(model)
    return len(pairs)


def _measure_apart(op: Builder, node: ir.Node) -> None:
    """Let DynamicQuantizeLinear find scale and zero point only, and a QuantizeLinear round."""
    nodes = list(op.graph)
    after = nodes[nodes.index(node) + 1 :]
    with op.at(
        after[0] if after else None, stage="forward", source="", prefix=node.name or node.op_type
    ):
        rounded = op.QuantizeLinear(node.inputs[0], *node.outputs[1:3])
    node.outputs[0].replace_all_uses_with(rounded, replace_graph_outputs=False)


def _quantizer(node: ir.Node) -> ir.Node | None:
    """The QuantizeLinear that a DequantizeLinear undoes."""
    if node.op_type != "DequantizeLinear" or node.domain or node.inputs[0] is None:
        return None
    quantizer = node.inputs[0].producer()
    if quantizer is None or quantizer.op_type != "QuantizeLinear" or quantizer.domain:
        return None
    if quantizer.graph is not node.graph:
        return None
    same = all(
        quantizer.attributes.get_int(name, default) == node.attributes.get_int(name, default)
        for name, default in (("axis", 1), ("block_size", 0))
    )
    ours, theirs = ([*n.inputs[1:], None][:2] for n in (quantizer, node))
    equal = all(_is_same(a, b) for a, b in zip(ours, theirs, strict=True))
    return quantizer if same and equal else None


def _is_same(a: ir.Value | None, b: ir.Value | None) -> bool:
    if a is b:
        return True
    if a is None or b is None:
        return False
    left, right = (ir.convenience.get_const_tensor(v) for v in (a, b))
    if left is None or right is None or left.dtype != right.dtype or left.shape != right.shape:
        return False
    return left.tobytes() == right.tobytes()


def _replace(op: Builder, quantizer: ir.Node, node: ir.Node) -> None:
    given = arguments(quantizer)
    x, y = quantizer.inputs[0], quantizer.outputs[0]
    options = {
        "axis": given.get("axis", 1),
        "block_size": given.get("block_size", 0),
        "kind": int(y.dtype or ir.DataType.UINT8),
        "saturate": given.get("saturate", 1),
        "precision": given.get("precision", 0),
        "to": node.attributes.get_int("output_dtype", 0),
    }
    name = node.name or node.op_type
    with op.at(node, stage="forward", source="", prefix=name):
        made = op.FakeQuantize(x, *quantizer.inputs[1:3], **options)
    old = node.outputs[0]
    title, old.name = old.name, None
    made.name = title
    old.replace_all_uses_with(made, replace_graph_outputs=True)
