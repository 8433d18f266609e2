"""Gradients of operators that read and write by indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph import deciding
from gradtool.graph.constants import array
from gradtool.graph.metadata import PADDING
from gradtool.graph.typed import Node, Tensor, ints
from gradtool.ops.gradients import Gradients, gradient, zero_gradient
from gradtool.ops.shared.scatter import HALF, count, rows, vector

zero_gradient("ArgMax", "ArgMin", "NonZero")


# -------------------------------------------------------------------------- gather


@gradient("Gather")
def gather(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y[i] = x[indices[i]]`:  dx[r] = Σ dy[i] over the i with indices[i] = r.

    A row of padding gets nothing (`gradtool.passes.stop_gradients`).
    """
    x, indices = node.inputs
    axis = node.attributes.get_int("axis", 0)
    padding = node.metadata_props.get(PADDING)
    if padding is not None:
        behind = range(len(indices.shape), len(dy.shape))  # axes of the row
        is_padding = op.unsqueeze(
            op.Equal(indices, op.constant(int(padding), indices.dtype)), behind
        )
        dy = op.Where(is_padding, op.constant(0.0, dy.dtype), dy)
    return op.GatherGrad(dy, indices, op.shape(x), axis=axis)


@gradient("GatherElements")
def gather_elements(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y[i] = x[indices[i]]`, element by element:  dx sums dy over the readers of each element."""
    x, indices = node.inputs
    axis = node.attributes.get_int("axis", 0)
    return op.GatherElementsGrad(dy, indices, op.shape(x), axis=axis)


@gradient("GatherND")
def gather_nd(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y[i] = x[indices[i]]`, row by row:  dx sums dy over the readers of each row."""
    x, indices = node.inputs
    batch_dims = node.attributes.get_int("batch_dims", 0)
    _require_depth(node, indices)
    return op.GatherNDGrad(dy, indices, op.shape(x), batch_dims=batch_dims)


@gradient("TopK")
def top_k(op: Builder, node: Node, dy: Tensor, _: Tensor | None) -> Tensor:
    """`y = x[indices]` along the axis:  dx is dy at the indices, zero elsewhere."""
    x = node.inputs[0]
    axis = node.attributes.get_int("axis", -1)
    return op.GatherElementsGrad(dy, node.outputs[1], op.shape(x), axis=axis)


@gradient("Compress")
def compress(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` is some slices of x:  dx is dy there and zero elsewhere."""
    x, condition = node.inputs
    chosen = op.Squeeze(op.NonZero(condition), [0])
    if "axis" in node.attributes:
        axis = node.attributes["axis"].as_int()
        return op.GatherGrad(dy, chosen, op.shape(x), axis=axis)
    flat = vector(op, count(op, op.shape(x)))
    return op.Reshape(op.GatherGrad(dy, chosen, flat, axis=0), op.shape(x))


@gradient("Unique")
def unique(op: Builder, node: Node, dy: Tensor, *_: Tensor) -> Tensor:
    """`y = x[first]`, the first of equal slices:  dx is dy there and zero elsewhere."""
    x = node.inputs[0]
    first = op.all_outputs(node, 2)[1]
    if "axis" in node.attributes:
        axis = node.attributes["axis"].as_int()
        return op.GatherGrad(dy, first, op.shape(x), axis=axis)
    flat = vector(op, count(op, op.shape(x)))
    return op.Reshape(op.GatherGrad(dy, first, flat, axis=0), op.shape(x))


@gradient("OneHot")
def one_hot(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = off + (on - off) · m` for the 0-1 mask m:  d(off, on) = Σ dy · (1 - m), Σ dy · m."""
    indices, depth, values = node.inputs
    axis = node.attributes.get_int("axis", -1)
    zero_one = np.array([0, 1], values.dtype.numpy())
    sums = [
        op.ReduceSum(dy * op.OneHot(indices, depth, op.constant(ends), axis=axis), keepdims=0)
        for ends in (zero_one[::-1].copy(), zero_one)
    ]
    return None, None, op.Concat(*(op.Unsqueeze(s, [0]) for s in sums), axis=0)


# ------------------------------------------------------------------------- scatter


@gradient("ScatterElements")
def scatter_elements(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = x`, then `y[i] = u` or `y[i] ⊕= u`, element by element, at the indices i."""
    x, indices, updates = node.inputs
    axis = node.attributes.get_int("axis", 0)
    reduction = node.attributes.get_string("reduction", "none")

    def read(value: Tensor) -> Tensor:
        return op.GatherElements(value, indices, axis=axis)

    def write(value: Tensor, new: Tensor, how: str) -> Tensor:
        return op.ScatterElements(value, indices, new, axis=axis, reduction=how)

    if reduction == "none":
        _refuse_repeats(node, _element_targets(indices, axis))
    dx, du = _scattered(op, dy, x, updates, node.outputs[0], reduction, read, write)
    return dx, None, du


@gradient("ScatterND")
def scatter_nd(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = x`, then `y[i] = u` or `y[i] ⊕= u`, row by row, at the indices i."""
    x, indices, updates = node.inputs
    reduction = node.attributes.get_string("reduction", "none")
    _require_depth(node, indices)
    if reduction == "none":
        _refuse_repeats(node, array(indices))
    if reduction in ("none", "add"):
        zeros = op.zeros_like(updates)
        dx = dy if reduction == "add" else op.ScatterND(dy, indices, zeros)
        return dx, None, op.GatherND(dy, indices)

    depth = ints(indices.shape)[-1]
    shape = op.shape(x)
    width = vector(op, count(op, op.Slice(shape, [depth], [len(x.shape)], [0])))
    lines = op.Concat([-1], width, axis=0)
    u = op.Reshape(updates, lines)
    source = op.Expand(rows(op, indices, shape, depth), op.shape(u))

    def read(value: Tensor) -> Tensor:
        return op.GatherElements(value, source, axis=0)

    def write(value: Tensor, new: Tensor, how: str) -> Tensor:
        return op.ScatterElements(value, source, new, axis=0, reduction=how)

    dy, x2, y = (op.Reshape(v, lines) for v in (dy, x, node.outputs[0]))
    dx, du = _scattered(op, dy, x2, u, y, reduction, read, write)
    return op.reshape_like(dx, x), None, op.reshape_like(du, updates)


def _require_depth(node: Node, indices: Tensor) -> None:
    """Raise if it is unknown how many axes an index counts along."""
    if not isinstance(indices.shape[-1], int):
        raise UnsupportedGradient(
            node, f"the last size of its indices is unknown: {deciding.of_values([indices])}"
        )


def _scattered(
    op: Builder, dy: Tensor, x: Tensor, u: Tensor, y: Tensor, reduction: str,
    read: Callable[[Tensor], Tensor], write: Callable[[Tensor, Tensor, str], Tensor],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of x and of the updates u.

        none      dx = dy, zero where overwritten       du = dy[i]
        add       dx = dy                               du = dy[i]
        max, min  dy to the winners, in equal parts where several are equal
        mul       dy times the product of all other factors of the element

    That product is the product of the factors that aren't zero, divided by the factor itself,
    unless another factor is zero.
    """
    if reduction == "none":
        return write(dy, op.zeros_like(u), "none"), read(dy)
    if reduction == "add":
        return dy, read(dy)
    if reduction in ("max", "min"):
        x_wins = op.cast(op.Equal(x, y), dy.dtype)
        u_wins = op.cast(op.Equal(u, read(y)), dy.dtype)
        wide = ir.DataType.FLOAT if dy.dtype in HALF else dy.dtype
        winners = write(op.cast(x_wins, wide), op.cast(u_wins, wide), "add")
        share = dy / op.cast(winners, dy.dtype)
        return share * x_wins, read(share) * u_wins

    x_zero, u_zero = (op.Equal(v, 0.0) for v in (x, u))
    x_one, u_one = (op.Where(zero, 1.0, v) for zero, v in ((x_zero, x), (u_zero, u)))
    product = write(x_one, u_one, "mul")
    x_count, u_count = (op.cast(zero, dy.dtype) for zero in (x_zero, u_zero))
    zeros = write(x_count, u_count, "add")
    x_alone = op.cast(op.Equal(zeros, x_count), dy.dtype)
    u_alone = op.cast(op.Equal(read(zeros), u_count), dy.dtype)
    return dy * (product / x_one) * x_alone, read(dy * product) / u_one * u_alone


def _element_targets(indices: Tensor, axis: int) -> np.ndarray[Any, Any] | None:
    """The element that each index of a ScatterElements writes, if the indices are constant."""
    known = array(indices)
    if known is None:
        return None
    targets = np.indices(known.shape)
    targets[axis] = known
    return targets.reshape(known.ndim, -1).T


def _refuse_repeats(node: Node, targets: np.ndarray[Any, Any] | None) -> None:
    """Raise if two updates overwrite one element: which of them stays is undefined."""
    if targets is None:
        return
    targets = targets.reshape(-1, targets.shape[-1])
    sizes = np.asarray(node.inputs[0].shape[: targets.shape[1]], dtype=object)
    wrapped = np.where(
        targets < 0, targets + [s if isinstance(s, int) else 0 for s in sizes], targets
    )
    if len(np.unique(wrapped, axis=0)) < len(wrapped):
        raise UnsupportedGradient(node, "repeated indices overwrite each other; set a reduction")
