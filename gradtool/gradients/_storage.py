"""Gradients of bits seen as another type, and of updates of a cache."""

from __future__ import annotations

from gradtool.errors import UnsupportedGradient
from gradtool.gradients import gradient


@gradient("BitCast")
def bit_cast(op, node, dy):
    """`y` has the bits of x: its value jumps wherever the types differ."""
    if node.inputs[0].dtype != node.outputs[0].dtype:
        raise UnsupportedGradient(node, "bits read as another type have no derivative")
    return dy


@gradient("TensorScatter")
def tensor_scatter(op, node, dy):
    """`y = past`, but where update was written:  dpast = dy but there, dupdate = dy there."""
    _, update, starts = (*node.inputs, None)[:3]
    options = {
        "mode": node.attributes.get_string("mode", "linear"),
        "axis": node.attributes.get_int("axis", -2),
    }
    dpast = op.TensorScatter(dy, op.zeros_like(update), starts, **options)
    return dpast, op.TensorScatterGrad(dy, op.shape(update), starts, **options), None
