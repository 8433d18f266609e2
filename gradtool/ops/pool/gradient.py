"""Gradients of pooling."""

from __future__ import annotations

import math

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.attributes import arguments
from gradtool.graph.typed import Node, Tensor
from gradtool.operators.windows import Window
from gradtool.ops.gradients import Gradients, gradient

MOST_TAPS = 2**24  # the gradient holds a kernel of ones


@gradient("MaxPool")
def max_pool(op: Builder, node: Node, dy: Tensor, dindices: Tensor | None = None) -> Tensor:
    """`y = max` over each window: dy is added at the place of the maximum, the first of equals.

    The places are the node's own second output; x is not kept.
    """
    x = node.inputs[0]
    indices = op.all_outputs(node, 2)[1]
    order = node.attributes.get_int("storage_order", 0)
    return op.MaxPoolGrad(dy, indices, op.shape(x), storage_order=order)


@gradient("AveragePool")
def average_pool(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = mean` over each window: dy, by the number of elements, is added to all of them."""
    include = node.attributes.get_int("count_include_pad", 0)
    window = _window(node)
    return op.AveragePoolGrad(
        dy, op.shape(node.inputs[0]), kernel_shape=window.kernel, **window.attributes,
        count_include_pad=include,
    )  # fmt: skip


@gradient("LpPool")
def lp_pool(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = (Σ |x|^p)^(1/p)` over each window:  dx = sign(x) · |x|^(p-1) · Σ dy · y^(1-p)."""
    p, window = node.attributes.get_int("p", 2), _window(node)
    return op.LpPoolGrad(
        node.inputs[0], node.outputs[0], dy, p=p, kernel_shape=window.kernel, **window.attributes
    )


def _window(node: Node) -> Window:
    given = arguments(node)
    try:
        window = Window.of(given["kernel_shape"], node.inputs[0].shape[2:], given, pool=True)
    except ValueError as error:
        raise UnsupportedGradient(node, str(error)) from None
    if math.prod(window.kernel) > MOST_TAPS:
        raise UnsupportedGradient(node, f"its window has more than {MOST_TAPS} elements")
    return window


@gradient("GlobalAveragePool")
def global_average_pool(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = mean` over each plane:  dx = dy / elements of a plane."""
    x = node.inputs[0]
    return op.expand(dy / op.length(x, range(2, len(x.shape))), x)


@gradient("GlobalMaxPool")
def global_max_pool(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = max` over each plane:  dx = dy at the first place of the maximum."""
    return op.GlobalMaxPoolGrad(node.inputs[0], dy)


@gradient("GlobalLpPool")
def global_lp_pool(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = (Σ |x|^p)^(1/p)` over each plane:  dx = sign(x) · |x|^(p-1) · dy · y^(1-p)."""
    p = node.attributes.get_int("p", 2)
    return op.GlobalLpPoolGrad(node.inputs[0], node.outputs[0], dy, p=p)


@gradient("MaxUnpool")
def max_unpool(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y` is zero but for x, at the places of `indices`, which count in y:  dx is dy there."""
    return op.Gather(op.Reshape(dy, [-1]), node.inputs[1], axis=0), None, None
