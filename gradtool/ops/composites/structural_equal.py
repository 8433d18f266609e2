"""Whether two lists of nodes compute the same, node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.ops.composites.dead_outputs import is_optional


def same_nodes(
    known: dict[ir.Value, ir.Value],
    emitted: list[ir.Node],
    nodes: list[ir.Node],
    pairs: dict[ir.Value, ir.Value],
) -> bool:
    """Whether two node lists compute the same, node by node; `pairs` maps results to results.

    The nodes of the second may lack optional outputs at the end that no node of the first reads.
    """
    if len(emitted) != len(nodes):
        return False
    for ours, theirs in zip(emitted, nodes, strict=True):
        if ours.op_identifier() != theirs.op_identifier():
            return False
        if len(ours.inputs) != len(theirs.inputs) or not _same_outputs(ours, theirs):
            return False
        if not all(
            _equal_input(known, a, b) for a, b in zip(ours.inputs, theirs.inputs, strict=True)
        ):
            return False
        if not _equal_attributes(known, ours, theirs):
            return False
        known.update(zip(ours.outputs, theirs.outputs, strict=False))
    return all(known.get(mine, mine) is value for mine, value in pairs.items())


def _same_outputs(ours: ir.Node, theirs: ir.Node) -> bool:
    """Whether nodes have equally many outputs, optional last ones of `ours` aside."""
    mine, least = len(ours.outputs), len(theirs.outputs)
    return mine >= least and all(is_optional(ours, i) for i in range(least, mine))


def _equal_input(known: dict[ir.Value, ir.Value], a: ir.Value | None, b: ir.Value | None) -> bool:
    if a is None or b is None:
        return a is b
    if known.get(a, a) is b:
        return True
    left, right = a.const_value, b.const_value
    if left is None or right is None or left.dtype != right.dtype or left.shape != right.shape:
        return False
    if getattr(left, "absent", False) or getattr(right, "absent", False):
        return False
    return left.tobytes() == right.tobytes()


def _equal_attributes(known: dict[ir.Value, ir.Value], ours: ir.Node, theirs: ir.Node) -> bool:
    if sorted(ours.attributes) != sorted(theirs.attributes):
        return False
    for name, a in ours.attributes.items():
        b = theirs.attributes[name]
        if a.type != b.type:
            return False
        if a.type == ir.AttributeType.GRAPH:
            if not _equal_graphs(known, a.as_graph(), b.as_graph()):
                return False
        elif a.type == ir.AttributeType.TENSOR:
            left, right = a.as_tensor(), b.as_tensor()
            if left.dtype != right.dtype or left.tobytes() != right.tobytes():
                return False
        elif _stored(a) != _stored(b):
            return False
    return True


def _stored(attr: ir.Attr) -> Any:
    """The value of an attribute as files hold it: floats have single precision."""
    if attr.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
        return np.asarray(attr.value, dtype=np.float32).tolist()
    return attr.value


def _equal_graphs(known: dict[ir.Value, ir.Value], a: ir.Graph, b: ir.Graph) -> bool:
    if len(a.inputs) != len(b.inputs) or len(a.outputs) != len(b.outputs):
        return False
    inner = known | dict(zip(a.inputs, b.inputs, strict=True))
    produced = dict(zip(a.outputs, b.outputs, strict=True))
    return same_nodes(inner, list(a), list(b), produced)
