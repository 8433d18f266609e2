"""Gradients of operators that read and write by indices."""

from __future__ import annotations

import numpy as np

from gradtool.errors import UnsupportedGradient
from gradtool.functions._sizes import integers
from gradtool.gradients import gradient, zero_gradient

zero_gradient("ArgMax", "ArgMin", "NonZero")


# -------------------------------------------------------------------------- gather


@gradient("Gather")
def gather(op, node, dy):
    """`y[i] = x[indices[i]]`:  dx[r] = Σ dy[i] over the i with indices[i] = r."""
    x, indices = node.inputs
    axis = node.attributes.get_int("axis", 0)
    return op.GatherGrad(dy, indices, op.shape(x), axis=axis)


@gradient("GatherElements")
def gather_elements(op, node, dy):
    """`y[i] = x[indices[i]]`, element by element:  dx sums dy over the readers of each element."""
    x, indices = node.inputs
    axis = node.attributes.get_int("axis", 0)
    return op.GatherElementsGrad(dy, indices, op.shape(x), axis=axis)


@gradient("GatherND")
def gather_nd(op, node, dy):
    """`y[i] = x[indices[i]]`, row by row:  dx sums dy over the readers of each row."""
    x, indices = node.inputs
    batch_dims = node.attributes.get_int("batch_dims", 0)
    return op.GatherNDGrad(dy, indices, op.shape(x), batch_dims=batch_dims)
