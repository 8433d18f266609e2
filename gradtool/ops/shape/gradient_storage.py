"""Gradients of bits seen as another type, and of updates of a cache."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.typed import Node, Tensor, given
from gradtool.ops.gradients import Gradients, gradient


@gradient("BitCast")
def bit_cast(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` has the bits of x: its value jumps wherever the types differ."""
    if node.inputs[0].dtype != node.outputs[0].dtype:
        raise UnsupportedGradient(node, "bits read as another type have no derivative")
    return dy


@gradient("TensorScatter")
def tensor_scatter(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = past`, but where update was written:  dpast = dy but there, dupdate = dy there."""
    update, starts = node.inputs[1], given(node, 2)
    options = {
        "mode": node.attributes.get_string("mode", "linear"),
        "axis": node.attributes.get_int("axis", -2),
    }
    dpast = op.TensorScatter(dy, op.zeros_like(update), starts, **options)
    return dpast, op.TensorScatterGrad(dy, op.shape(update), starts, **options), None
