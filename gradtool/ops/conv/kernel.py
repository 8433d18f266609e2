"""Convolution, transposed convolution, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.operators import windows
from gradtool.operators.windows import Window
from gradtool.ops.conv import kernel_columns as columns
from gradtool.ops.conv import kernel_depthwise as depthwise
from gradtool.ops.conv.kernel_sizes import Convolution
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays, Specs


def convolution(
    x: Array | Spec, w: Array | Spec, y: Array | Spec, attributes: Mapping[str, Any]
) -> Convolution:
    """The sizes of a convolution from x to y."""
    window = Window.of(w.shape[2:], x.shape[2:], attributes)
    group = attributes.get("group") or 1
    return Convolution(tuple(x.shape), tuple(y.shape), group, window, x.dtype)


def transposed(
    x: Array | Spec, w: Array | Spec, y: Array | Spec, attributes: Mapping[str, Any]
) -> Convolution:
    """The convolution whose gradient takes x to y: with pads as ConvTranspose has them."""
    window, _ = windows.transposed(w.shape[2:], x.shape[2:], y.shape[2:], attributes)
    group = attributes.get("group") or 1
    return Convolution(tuple(y.shape), tuple(x.shape), group, window, x.dtype)


def _workspace(conv: Convolution) -> list[Spec]:
    if conv.depthwise:
        return depthwise.Workspace.specs(conv)
    if conv.pointwise and conv.wide == conv.dtype:
        return []
    return [conv.columns(), conv.buffer(), conv.products(), conv.widened()]


def _forward_work(
    x: Spec, w: Spec, bias: Spec | None = None, *, out: Specs, **attributes: Any
) -> list[Spec]:
    return _workspace(convolution(x, w, out[0], attributes))


@kernel("Conv", work=_forward_work)
def conv(
    xp: Any, x: Array, w: Array, bias: Array | None = None, *,
    out: Arrays, work: Arrays, **attributes: Any,
) -> None:  # fmt: skip
    """`y[N, M, *out] = Σ x[N, C, *in] · w[M, C/G, *kernel] + b[M]`."""
    sizes = convolution(x, w, out[0], attributes)
    method = depthwise if sizes.depthwise else columns
    method.forward(xp, sizes, x, w, bias, out[0], work)


def _transposed_work(x: Spec, w: Spec, *, out: Specs, **attributes: Any) -> list[Spec]:
    return _workspace(transposed(x, w, out[0], attributes))


@kernel("ConvTranspose", work=_transposed_work)
def conv_transpose(
    xp: Any, x: Array, w: Array, bias: Array | None = None, *,
    out: Arrays, work: Arrays, **attributes: Any,
) -> None:  # fmt: skip
    """The gradient of a convolution by its input, plus a bias per channel."""
    sizes = transposed(x, w, out[0], attributes)
    method = depthwise if sizes.depthwise else columns
    method.backward_input(xp, sizes, x, w, out[0], work)
    if bias is not None:
        xp.add(out[0], bias.reshape(-1, *(1,) * sizes.window.rank), out=out[0])


def _input_work(dy: Spec, w: Spec, *, out: Specs, **attributes: Any) -> list[Spec]:
    return _workspace(convolution(out[0], w, dy, attributes))


@kernel("ai.gradtool::ConvGradInput", host=(2,), work=_input_work)
def conv_grad_input(
    xp: Any, dy: Array, w: Array, _: Array, *, out: Arrays, work: Arrays, **attributes: Any
) -> None:
    """The gradient of a convolution by its input, whose sizes are the third operand."""
    sizes = convolution(out[0], w, dy, attributes)
    method = depthwise if sizes.depthwise else columns
    method.backward_input(xp, sizes, dy, w, out[0], work)


def _weight_work(x: Spec, dy: Spec, *, out: Specs, **attributes: Any) -> list[Spec]:
    conv = convolution(x, out[0], dy, attributes)
    if conv.depthwise:
        sums = Spec((depthwise.channels(conv),), conv.wide)
        return [*depthwise.Workspace.specs(conv, dots=True), sums]
    view = conv.pointwise and conv.direct
    part = Spec(conv.weights if conv.several else (0,), conv.wide)
    made = Spec((0,), conv.wide) if view else conv.columns()
    return [made, conv.buffer(), conv.products(), part, conv.widened()]


@kernel("ai.gradtool::ConvGradWeight", work=_weight_work)
def conv_grad_weight(
    xp: Any, x: Array, dy: Array, *,
    out: Arrays, work: Arrays, kernel_shape: Sequence[int], **attributes: Any,
) -> None:  # fmt: skip
    """The gradient of a convolution by its weight, of the given kernel shape."""
    sizes = convolution(x, out[0], dy, attributes)
    method = depthwise if sizes.depthwise else columns
    method.backward_weight(xp, sizes, x, dy, out[0], work)
