"""Products of integers, and where they become floats: by a cast and the scales of operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.families import CONTRIB
from gradtool.graph.predicates import is_integer
from gradtool.graph.typed import as_tensor
from gradtool.passes.parameters import SCALE

PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
MATRIX = 2  # axes
SCALED = "gradtool.scaled"  # in the meta of a matrix of integers: its products with floats


@dataclass(frozen=True)
class Scaled:
    """A product of floats `x` with a matrix of integers: the node that scales it, and its name.

    The sizes are those of the matrix in the file, [in, out], however it is packed later.
    """

    node: ir.Node
    x: ir.Value | None
    name: str
    sizes: tuple[int, ...]


def casts(product: ir.Value) -> Iterator[tuple[ir.Node, ir.Value | None]]:
    """The casts to floats of an integer product, and the integer added to it before."""
    for use in product.uses():
        node = use.node
        if node.op_type == "Cast" and not is_integer(node.outputs[0]):
            yield node, None
        elif node.op_type == "Add" and not node.outputs[0].is_graph_output():
            after = [each.node for each in node.outputs[0].uses()]
            if all(n.op_type == "Cast" and not is_integer(n.outputs[0]) for n in after):
                yield from ((n, node.inputs[1 - use.idx]) for n in after)


def mark_scales(graph: ir.Graph) -> None:
    """Note the factors of products of integers: initializers there are no parameters.

    A matrix of integers notes its products with floats that are rounded on the way.
    """
    found: dict[ir.Value, list[Scaled]] = {}
    for node in walk.nodes(graph):
        if node.op_type in PRODUCTS and not node.domain:
            for cast, _ in casts(node.outputs[0]):
                _mark_scales(cast.outputs[0])
        scaled = _scaled(node)
        if scaled is not None:
            found.setdefault(as_tensor(node.inputs[1]), []).append(scaled)
    for weight, products in found.items():
        weight.meta[SCALED] = tuple(products)


def _scaled(node: ir.Node) -> Scaled | None:
    """Where a product of integers is scaled, if the scale of its first operand is measured."""
    kind, name = (node.domain, node.op_type), node.name or ""
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    if weight is None or not weight.is_initializer() or weight.shape is None:
        return None
    sizes = tuple(weight.shape.numpy())
    if len(sizes) != MATRIX:
        return None
    if kind == (CONTRIB, "DynamicQuantizeMatMul"):
        return Scaled(node, node.inputs[0], name, sizes)
    if kind not in (("", "MatMulInteger"), (CONTRIB, "MatMulIntegerToFloat")):
        return None
    source = None if node.inputs[0] is None else node.inputs[0].producer()
    if source is None or source.op_type != "DynamicQuantizeLinear":
        return None
    ends = [node]
    if not node.domain:
        ends = [use.node for cast, _ in casts(node.outputs[0]) for use in cast.outputs[0].uses()]
        if [end.op_type for end in ends] != ["Mul"]:
            return None
    return Scaled(ends[0], source.inputs[0], name, sizes)


def _mark_scales(whole: ir.Value) -> None:
    waiting = [v for u in whole.uses() if u.node.op_type == "Mul" for v in u.node.inputs]
    while waiting:
        value = waiting.pop()
        node = None if value is None else value.producer()
        if value is not None and value.is_initializer():
            value.meta[SCALE] = True
        elif node is not None and node.op_type == "Mul" and value is not whole:
            waiting += node.inputs
