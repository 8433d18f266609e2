"""The gradient of running products."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.constants import integers
from gradtool.graph.typed import Node, Tensor
from gradtool.ops.gradients import Gradients, gradient


@gradient("CumProd")
def cum_prod(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y[i] = Π x[j], j ≤ i`:  dx[i] = Σ dy[k] Π x[j], j ≤ k but i; exact where x is 0."""
    x, axis = node.inputs
    if integers(axis) is None:
        raise UnsupportedGradient(node, "its axis is computed; make it a constant")
    options = {name: node.attributes.get_int(name, 0) for name in ("exclusive", "reverse")}
    return op.CumProdGrad(x, axis, dy, **options), None
