"""Barriers (see `barrier`) taken out of a model again."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.metadata import BARRIER, notes
from gradtool.graph.predicates import SIZES, made_by, op_of
from gradtool.graph.prune import detach


def strip_barriers(model: ir.Model) -> int:
    """Take barriers out again, in place. Returns how many values were passed through one.

    Metadata only tells where to look: a removed barrier is proved to pass on its operand.
    """
    graph = model.graph
    marked = [node for node in walk.nodes(graph) if BARRIER in notes(node)]
    count = 0
    for node in marked:  # a value may pass several
        if not _passes(node):
            continue
        count, value = count + 1, node.inputs[0]
        assert value is not None  # noqa: S101 - it passes that on
        node.outputs[0].replace_all_uses_with(value)
    constants: dict[ir.Value, None] = {}
    for node in reversed(marked):
        if not any(v.uses() or v.is_graph_output() for v in node.outputs):
            constants |= dict.fromkeys(v for v in node.inputs if v is not None)
            home = node.graph
            detach(node)
            assert home is not None  # noqa: S101 - nodes of a graph are walked
            home.remove(node)
    for value in constants:
        if value.is_initializer() and not value.uses() and not _is_public(value):
            del graph.initializers[value.name or ""]
    return count


def _is_public(value: ir.Value) -> bool:
    return value.is_graph_input() or value.is_graph_output()


def _passes(node: ir.Node) -> bool:
    """Whether a node is `Reshape(x, Shape(x) + 0 · Σn)` or `x + 0 · Σn`, for any integers n."""
    if node.outputs[0].is_graph_output() or len(node.inputs) != 2:
        return False
    value, other = node.inputs
    if op_of(node) == "Reshape":
        total = made_by("Add", other)
        size, other = total.inputs if total is not None else (None, None)
        asked = made_by("Shape", size)
        if value is None or asked is None or asked.attributes or asked.inputs[0] is not value:
            return False
    elif op_of(node) != "Add" or value is None or value.dtype not in SIZES or _is_part(value):
        return False
    cast = made_by("Cast", other)
    product = made_by("Mul", other if cast is None else cast.inputs[0])
    return product is not None and _is_zero(product)


def _is_part(value: ir.Value) -> bool:
    """Whether a value is within a barrier."""
    node = value.producer()
    return node is not None and BARRIER in node.metadata_props


def _is_zero(product: ir.Node) -> bool:
    """Whether a product is of a full sum, a scalar, and the scalar 0."""
    some, none = product.inputs
    total = made_by("ReduceSum", some)
    if total is None or len(total.inputs) != 1 or none is None or none.is_graph_input():
        return False
    attributes = {name: attr.value for name, attr in total.attributes.items()}
    tensor = none.const_value
    if attributes != {"keepdims": 0} or tensor is None or getattr(tensor, "absent", False):
        return False
    return tensor.dtype == ir.DataType.INT64 and tensor.shape == () and not tensor.numpy().any()
