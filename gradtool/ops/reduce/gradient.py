"""Gradients of reductions: the gradient of a result goes back to all its elements."""

from __future__ import annotations

import math

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.constants import integers
from gradtool.graph.typed import Node, Tensor, given, static
from gradtool.ops.gradients import Gradients, gradient


def _axes(node: Node) -> list[int] | None:
    """The axes reduced over, sorted; None if they are only known at run time."""
    x = node.inputs[0]
    rank = len(x.shape)
    named = given(node, 1)
    if named is not None and named.shape != ir.Shape([0]):
        tensor = ir.convenience.get_const_tensor(named)
        if tensor is None:
            return None
        axes = sorted(int(a) % rank for a in tensor.numpy())
        if axes:
            return axes
    return [] if node.attributes.get_int("noop_with_empty_axes", 0) else list(range(rank))


def _static_axes(node: Node) -> list[int]:
    axes = _axes(node)
    if axes is None:
        raise UnsupportedGradient(node, "its axes must be constant")
    return axes


def _kept(op: Builder, node: Node, value: Tensor) -> Tensor:
    """`value`, of the shape of y, with the reduced axes as axes of size one."""
    if node.attributes.get_int("keepdims", 1):
        return value
    return op.unsqueeze(value, _static_axes(node))


@gradient("ReduceSum")
def reduce_sum(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = Σ x`:  dx = dy."""
    return op.expand(_kept(op, node, dy), node.inputs[0])


@gradient("ReduceMean")
def reduce_mean(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = Σ x / n`:  dx = dy / n."""
    x = node.inputs[0]
    wide = op.cast(dy, ir.DataType.FLOAT) if dy.dtype.bitwidth < 32 else dy
    share = op.cast(wide / _count(op, node, wide.dtype), dy.dtype)
    return op.expand(_kept(op, node, share), x)


def _count(op: Builder, node: Node, dtype: ir.DataType) -> Tensor:
    """Number of elements of x per element of y."""
    x, y, axes = node.inputs[0], node.outputs[0], _axes(node)
    if axes is None:
        return op.cast(op.Size(x), dtype) / op.cast(op.Size(y), dtype)
    sizes = [x.shape[a] for a in axes]
    if static(sizes):
        return op.constant(float(math.prod(sizes)), dtype)
    return op.cast(op.ReduceProd(op.sizes(sizes), keepdims=0), dtype)


@gradient("ReduceMax")
@gradient("ReduceMin")
def reduce_extreme(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = max x` or `min x`:  dx = dy / k at the k elements that equal y, else 0."""
    y, dy = _kept(op, node, node.outputs[0]), _kept(op, node, dy)
    return op.ReduceExtremeGrad(node.inputs[0], y, dy, axes=_static_axes(node))


@gradient("ReduceProd")
def reduce_prod(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = Π x`:  dxᵢ = dy · Π xⱼ over j ≠ i, exact where elements are zero."""
    axes = _static_axes(node)
    return op.ReduceProdGrad(node.inputs[0], _kept(op, node, dy), axes=axes) if axes else dy


@gradient("ReduceL1")
def reduce_l1(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = Σ |x|`:  dx = dy · sign(x)."""
    return op.AbsGrad(node.inputs[0], _kept(op, node, dy))


@gradient("ReduceL2")
def reduce_l2(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = √Σ x²`:  dx = x · dy / y, and 0 where y is 0."""
    y = node.outputs[0]
    ratio = op.Where(op.Equal(y, 0.0), 0.0, dy / y)
    return node.inputs[0] * _kept(op, node, ratio)


@gradient("ReduceSumSquare")
def reduce_sum_square(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = Σ x²`:  dx = 2 x · dy."""
    return node.inputs[0] * _kept(op, node, dy + dy)


@gradient("ReduceLogSum")
def reduce_log_sum(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = log Σ x`:  dx = dy · exp(-y)."""
    return op.expand(_kept(op, node, dy * op.Exp(-node.outputs[0])), node.inputs[0])


@gradient("ReduceLogSumExp")
def reduce_log_sum_exp(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = log Σ exp x`:  dx = dy · exp(x - y)."""
    y, dy = _kept(op, node, node.outputs[0]), _kept(op, node, dy)
    return op.ReduceLogSumExpGrad(node.inputs[0], y, dy)


@gradient("CumSum")
def cumsum(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`yᵢ = x₁ + … + xᵢ`:  dxᵢ = dyᵢ + … + dyₙ, the running sum in the other direction."""
    exclusive = node.attributes.get_int("exclusive", 0)
    reverse = 1 - node.attributes.get_int("reverse", 0)
    return op.CumSum(dy, node.inputs[1], exclusive=exclusive, reverse=reverse), None


@gradient("CumProd")
def cum_prod(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y[i] = Π x[j], j ≤ i`:  dx[i] = Σ dy[k] Π x[j], j ≤ k but i; exact where x is 0."""
    x, axis = node.inputs
    if integers(axis) is None:
        raise UnsupportedGradient(node, "its axis is computed; make it a constant")
    options = {name: node.attributes.get_int(name, 0) for name in ("exclusive", "reverse")}
    return op.CumProdGrad(x, axis, dy, **options), None
