"""Gradients of operators that move data without computing: layouts, windows, joins, borders."""

from __future__ import annotations

import numpy as np

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.attributes import arguments
from gradtool.graph.constants import array, integers
from gradtool.graph.typed import Node, Tensor, given
from gradtool.ops.gradients import Gradients, gradient, zero_gradient

zero_gradient("Shape", "Size", "ConstantOfShape")


# ------------------------------------------------------------------------- layouts


@gradient("Reshape")
def reshape(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` is x in another shape, and so is dx dy."""
    return op.reshape_like(dy, node.inputs[0])


@gradient("Flatten")
def flatten(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` is x in another shape, and so is dx dy."""
    return op.reshape_like(dy, node.inputs[0])


@gradient("Squeeze")
def squeeze(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` lacks axes of size one, which dx gets back."""
    x, axes = node.inputs[0], given(node, 1)
    return op.reshape_like(dy, x) if axes is None else op.Unsqueeze(dy, axes)


@gradient("Unsqueeze")
def unsqueeze(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` has additional axes of size one, which dx loses."""
    axes = node.inputs[1]
    return dy if integers(axes) == [] else op.Squeeze(dy, axes)


@gradient("Transpose")
def transpose(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y[i∘perm] = x[i]`:  dx is dy in the inverse order."""
    rank = len(dy.shape)
    perm = node.attributes.get_ints("perm", range(rank)[::-1])
    return op.transpose(dy, np.argsort(perm).tolist())


@gradient("Expand", broadcasts=True)
def expand(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y` repeats x:  dx sums dy over the repetitions."""
    return dy, None


# ------------------------------------------------------------------ windows, joins


@gradient("Slice")
def slice_(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x[starts:ends:steps]`:  dx is dy there and zero elsewhere."""
    x, *bounds = node.inputs
    return op.SliceGrad(dy, op.shape(x), *bounds)


@gradient("Split")
def split(op: Builder, node: Node, *dys: Tensor | None) -> Tensor:
    """`x` is the outputs end to end, and dx their gradients; zeros where none arrives."""
    parts = [
        op.zeros_like(y) if dy is None else dy for y, dy in zip(node.outputs, dys, strict=True)
    ]
    return op.concat(parts, node.attributes.get_int("axis", 0))


@gradient("Concat")
def concat(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y` is the inputs end to end:  each gets its piece of dy."""
    axis = node.attributes["axis"].as_int()
    if len(node.inputs) == 1:
        return dy
    sizes = op.sizes([x.shape[axis] for x in node.inputs])
    return op.Split(dy, sizes, axis=axis, outputs=len(node.inputs))


# -------------------------------------------------------------- borders, repetition


@gradient("Pad")
def pad(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y` is x within a border.

    A constant border:  dx is dy without it, and the constant gets the sum over it.
    Else dx sums dy over all places that show an element.
    """
    x, pads, *rest = node.inputs
    value, axes = [*rest, None, None][:2]
    mode = node.attributes.get_string("mode", "constant")
    if mode != "constant":
        return op.PadGrad(dy, op.shape(x), pads, axes, mode=mode)
    dx = op.pad(dy, _negated(op, pads), axes)
    if value is None:
        return dx
    one = op.constant(np.ones(value.shape.numpy(), value.dtype.numpy()))
    border = dy * op.pad(op.zeros_like(x), pads, axes, value=one)
    return dx, None, op.reshape_like(op.ReduceSum(border, keepdims=0), value)


def _negated(op: Builder, pads: Tensor) -> Tensor:
    known = integers(pads)
    return op.Neg(pads) if known is None else op.constant([-n for n in known])


@gradient("Tile")
def tile(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` repeats x along every axis:  dx sums dy over the repetitions."""
    x, repeats = node.inputs
    rank = len(x.shape)
    known = integers(repeats)
    if known is not None:
        spread = op.reshape(dy, [n for pair in zip(known, x.shape, strict=True) for n in pair])
    else:
        pairs = [op.Unsqueeze(v, [1]) for v in (repeats, op.shape(x))]
        sizes = op.Reshape(op.Concat(*pairs, axis=1), [2 * rank])
        spread = op.Reshape(dy, sizes, allowzero=1)
    return op.sum(spread, range(0, 2 * rank, 2))


@gradient("Trilu")
def trilu(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` is a triangle of x, and so is dx of dy."""
    return op.Trilu(dy, *node.inputs[1:], upper=node.attributes.get_int("upper", 1))


@gradient("CenterCropPad")
def center_crop_pad(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` is the middle of x, with zeros around where it is larger:  the same back for dx."""
    return op.CenterCropPad(dy, op.shape(node.inputs[0]))


@gradient("ReverseSequence")
def reverse_sequence(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` is x with the beginnings of its sequences reversed, and so is dx of dy."""
    return op.ReverseSequence(dy, node.inputs[1], **arguments(node))


# ------------------------------------------------------------------------- pictures


@gradient("DepthToSpace")
def depth_to_space(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` has channels as blocks of pixels:  dx has the pixels as channels again."""
    size = node.attributes["blocksize"].as_int()
    if node.attributes.get_string("mode", "DCR") == "DCR":
        return op.SpaceToDepth(dy, blocksize=size)
    n, c, h, w = node.inputs[0].shape
    blocks = op.reshape(dy, [n, c // size**2, h, size, w, size])
    return op.reshape(op.transpose(blocks, [0, 1, 3, 5, 2, 4]), [n, c, h, w])


@gradient("SpaceToDepth")
def space_to_depth(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` has blocks of pixels as channels:  dx has them as pixels again."""
    mode = node.attributes.get_string("mode", "DCR")
    return op.DepthToSpace(dy, blocksize=node.attributes["blocksize"].as_int(), mode=mode)


@gradient("Col2Im")
def col2im(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` is the sum of blocks at their places:  dx is the blocks of dy."""
    block = node.inputs[2]
    if integers(block) is None:
        raise UnsupportedGradient(node, "the shape of the blocks is not constant")
    return op.Col2ImGrad(dy, block, **arguments(node))


@gradient("Resize")
def resize(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y` is linear in x:  dx is its transpose applied to dy."""
    x, inputs = node.inputs[0], [given(node, slot) for slot in range(1, len(node.inputs))]
    attributes = arguments(node)
    inputs = [i if i is None or i.shape != (0,) else None for i in inputs]
    if attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch" and len(inputs) == 3:
        roi, _, sizes = inputs
        axes = attributes.get("axes") or range(len(x.shape))
        if array(sizes) is None or not all(isinstance(x.shape[a], int) for a in axes):
            raise UnsupportedGradient(node, "keep_aspect_ratio_policy needs sizes that are known")
        crops = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        if crops and attributes.get("antialias", 0) and roi is not None and array(roi) is None:
            why = "keep_aspect_ratio_policy with antialias needs a region (roi) that is known"
            raise UnsupportedGradient(node, why)
    return op.ResizeGrad(dy, op.shape(x), *inputs, **attributes), None, None, None


@gradient("Range")
def range_(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y[i] = start + i · delta`:  dstart = Σ dy,  ddelta = Σ i · dy,  and 0 for the limit."""
    delta = node.inputs[2]
    numbers = op.Range(op.constant(0), op.Size(dy), op.constant(1))
    steps = op.ReduceSum(dy * op.cast(numbers, dy.dtype), keepdims=0)
    return op.ReduceSum(dy, keepdims=0), None, op.reshape_like(steps, delta)


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
