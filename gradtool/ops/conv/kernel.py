"""Convolution, transposed and deformable convolution, and gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators import windows
from gradtool.operators.block_size import at_a_time
from gradtool.operators.windows import Window
from gradtool.ops.conv import kernel_columns as columns
from gradtool.ops.conv import kernel_depthwise as depthwise
from gradtool.ops.conv.kernel_sizes import Convolution
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays, DType, Specs
from gradtool.ops.shared.upcast import widened
from gradtool.ops.vision.kernel_sampling import MOST, POINTS, interpolate, pieces


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


def _deform_work(
    x: Spec, w: Spec, offset: Spec, bias: Spec | None = None, mask: Spec | None = None, *,
    out: Specs, offset_group: int = 1, **attributes: Any,
) -> list[Spec]:  # fmt: skip
    points = min(at_a_time(POINTS, MOST), math.prod(out[0].shape[2:]))
    taps = math.prod(w.shape[2:])
    flat = Spec((x.shape[1] * taps * points,), x.dtype)
    return [flat, Spec((x.shape[1] // offset_group * points,), x.dtype),
            Spec((out[0].shape[1] * points,), x.dtype)]  # fmt: skip


def _deform_conv(
    xp: Any, x: Array, w: Array, offset: Array, bias: Array | None = None,
    mask: Array | None = None, *,
    out: Arrays, work: Arrays, group: int = 1, offset_group: int = 1, **attributes: Any,
) -> None:  # fmt: skip
    """`y = Σ x(position + offset) · mask · w + b`, over any number of axes."""
    y = out[0]
    sizes, kernel_shape = x.shape[2:], w.shape[2:]
    taps, rank, places = math.prod(kernel_shape), len(sizes), math.prod(y.shape[2:])
    base = origins(Window.of(kernel_shape, sizes, attributes), y.shape[2:], x.dtype)
    options = (sizes, "linear", "zeros", 1)
    weights = w.reshape(group, w.shape[0] // group, -1)
    for n in range(len(x)):
        images = x[n].reshape(offset_group, x.shape[1] // offset_group, -1)
        moves = offset[n].reshape(offset_group, taps, rank, places)
        shares = None if mask is None else mask[n].reshape(offset_group, taps, places)
        for piece in pieces(places):
            count = piece.stop - piece.start
            columns = work[0][: x.shape[1] * taps * count]
            grouped = columns.reshape(offset_group, -1, taps, count)
            for g, t in np.ndindex(offset_group, taps):
                where = [xp.asarray(base[t, a, piece]) + moves[g, t, a, piece] for a in range(rank)]
                part = grouped[g][:, t]
                interpolate(xp, images[g], where, part, work[1], options)
                if shares is not None:
                    part *= shares[g, t, piece]
            products = work[2][: y.shape[1] * count].reshape(group, -1, count)
            xp.matmul(weights, columns.reshape(group, -1, count), out=products)
            y[n].reshape(y.shape[1], -1)[:, piece] = products.reshape(y.shape[1], count)
    if bias is not None:
        y += bias.reshape(-1, *[1] * rank)


def origins(window: Window, out: Sequence[int], dtype: DType) -> Array:
    """Positions of the taps of each window without offsets: `[taps, rank, places]`."""
    taps = np.indices(window.kernel).reshape(window.rank, -1)
    places = np.indices(tuple(out)).reshape(window.rank, -1)
    scale = [np.array(v)[:, None] for v in (window.dilations, window.strides, window.begin)]
    dilated, strided = taps * scale[0], places * scale[1] - scale[2]
    return (dilated[:, :, None] + strided[:, None]).transpose(1, 0, 2).astype(dtype)


def _origin_bytes(x: Spec, w: Spec, *, out: Specs) -> int:
    return math.prod(w.shape[2:]) * math.prod(out[0].shape[2:]) * 2 * 8 * (len(x.shape) - 2)


_function, _work = widened(_deform_conv, _deform_work)
kernel("DeformConv", work=_work, temporaries=_origin_bytes)(_function)
