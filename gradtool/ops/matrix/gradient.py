"""Gradients of operators on square matrices."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.typed import Node, Tensor
from gradtool.ops.gradients import gradient, zero_gradient

zero_gradient("EyeLike")


@gradient("Det")
def det(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = det x`:  dx = dy · cofactor(x), which exists where x is singular too."""
    x = node.inputs[0]
    if not isinstance(x.shape[-1], int):
        raise UnsupportedGradient(node, "the size of the matrix is open; give it with --dim")
    return op.DetGrad(x, dy)
