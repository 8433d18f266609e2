"""Gradients of operators on square matrices."""

from __future__ import annotations

from gradtool.errors import UnsupportedGradient
from gradtool.gradients import gradient, zero_gradient

zero_gradient("EyeLike")


@gradient("Det")
def det(op, node, dy):
    """`y = det x`:  dx = dy · cofactor(x), which exists where x is singular too."""
    x = node.inputs[0]
    if not isinstance(x.shape[-1], int):
        raise UnsupportedGradient(node, "the size of the matrix is open; give it with --dim")
    return op.DetGrad(x, dy)
