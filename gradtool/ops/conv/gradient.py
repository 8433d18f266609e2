"""Gradients of convolution."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.attributes import arguments
from gradtool.graph.typed import Node, Tensor, static
from gradtool.operators.windows import Window, transposed
from gradtool.ops.gradients import Gradients, gradient


@gradient("Conv")
def conv(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y[N, M, *out] = Σ x[N, C, *in] · w[M, C/G, *kernel] + b[M]`, over any number of axes.

    dx is the transposed convolution of dy by w; of x it needs the sizes only.  dw is the
    convolution of x by dy in which batch and channels trade places.
    """
    x, w, *_ = node.inputs
    given = arguments(node)
    kernel = _kernel(node, w)
    try:
        window = Window.of(kernel, x.shape[2:], given)
    except ValueError as error:
        raise UnsupportedGradient(node, str(error)) from None
    spread = {"group": given.get("group", 1), **window.attributes}

    dx = op.ConvGradInput(dy, w, op.shape(x), **spread)
    dw = op.ConvGradWeight(x, dy, kernel_shape=kernel, **spread)
    db = op.sum(dy, [0, *range(2, len(x.shape))])
    return dx, dw, db


@gradient("ConvTranspose")
def conv_transpose(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y[N, M, *out]` is the gradient of a convolution by `w[C, M/G, *kernel]`, at `x[N, C, *in]`.

    dx is that convolution of dy; dw is as for Conv, with x and dy in each other's place.
    """
    x, w, *_ = node.inputs
    given = arguments(node)
    kernel = _kernel(node, w)
    try:
        window, _ = transposed(kernel, x.shape[2:], dy.shape[2:], given)
    except ValueError as error:
        raise UnsupportedGradient(node, str(error)) from None
    spread = {"group": given.get("group", 1), **window.attributes}
    rest = range(2, len(x.shape))

    dx = op.crop(op.Conv(dy, w, **spread), x.shape[2:], rest)
    dw = op.ConvGradWeight(dy, x, kernel_shape=kernel, **spread)
    db = op.sum(dy, [0, *rest])
    return dx, dw, db


@gradient("ai.gradtool::ConvGradWeight")
def conv_grad_weight(op: Builder, node: Node, ddw: Tensor) -> Gradients:
    """`dw = Σ x · dy`, linear in x and in dy.

    Where dw is, ddw takes the place of w: x gets the transposed convolution of dy by it, dy the
    convolution of x by it.
    """
    x, dy = node.inputs
    given = arguments(node)
    spread = {name: given[name] for name in ("group", "strides", "dilations", "pads")}
    dx = op.ConvGradInput(dy, ddw, op.shape(x), **spread)
    ddy = op.crop(op.Conv(x, ddw, **spread), dy.shape[2:], range(2, len(dy.shape)))
    return dx, ddy


def _kernel(node: Node, w: Tensor) -> tuple[int, ...]:
    kernel = w.shape[2:]
    if not static(kernel):
        raise UnsupportedGradient(node, "the size of its kernel is unknown; give it with --dim")
    return tuple(kernel)
