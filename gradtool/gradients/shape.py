"""Gradients of operators that move data without computing: layouts, windows, joins, borders."""

from __future__ import annotations

import numpy as np

from gradtool.functions._sizes import integers
from gradtool.gradients import gradient, zero_gradient

zero_gradient("Shape", "Size", "ConstantOfShape")


# ------------------------------------------------------------------------- layouts


@gradient("Reshape")
def reshape(op, node, dy):
    """`y` is x in another shape, and so is dx dy."""
    return op.reshape_like(dy, node.inputs[0])


@gradient("Flatten")
def flatten(op, node, dy):
    """`y` is x in another shape, and so is dx dy."""
    return op.reshape_like(dy, node.inputs[0])


@gradient("Squeeze")
def squeeze(op, node, dy):
    """`y` lacks axes of size one, which dx gets back."""
    x, *axes = node.inputs
    return op.Unsqueeze(dy, axes[0]) if axes and axes[0] else op.reshape_like(dy, x)


@gradient("Unsqueeze")
def unsqueeze(op, node, dy):
    """`y` has additional axes of size one, which dx loses."""
    return op.Squeeze(dy, node.inputs[1])


@gradient("Transpose")
def transpose(op, node, dy):
    """`y[i∘perm] = x[i]`:  dx is dy in the inverse order."""
    rank = len(dy.shape)
    perm = node.attributes.get_ints("perm", range(rank)[::-1])
    return op.transpose(dy, np.argsort(perm).tolist())


@gradient("Expand", broadcasts=True)
def expand(op, node, dy):
    """`y` repeats x:  dx sums dy over the repetitions."""
    return dy, None


# ------------------------------------------------------------------ windows, joins


@gradient("Slice")
def slice_(op, node, dy):
    """`y = x[starts:ends:steps]`:  dx is dy there and zero elsewhere."""
    x, *bounds = node.inputs
    return op.SliceGrad(dy, op.shape(x), *bounds)


@gradient("Split")
def split(op, node, *dys):
    """`x` is the outputs end to end, and dx their gradients; zeros where none arrives."""
    parts = [op.zeros_like(y) if dy is None else dy for y, dy in zip(node.outputs, dys, strict=True)]
    return op.concat(parts, node.attributes.get_int("axis", 0))


@gradient("Concat")
def concat(op, node, dy):
    """`y` is the inputs end to end:  each gets its piece of dy."""
    axis = node.attributes["axis"].as_int()
    if len(node.inputs) == 1:
        return dy
    sizes = op.sizes([x.shape[axis] for x in node.inputs])
    return op.Split(dy, sizes, axis=axis, outputs=len(node.inputs))
