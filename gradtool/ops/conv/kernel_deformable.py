"""Deformable convolution: columns sampled between the elements, then products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.operators.windows import Window
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays, DType, Specs
from gradtool.ops.shared.upcast import widened
from gradtool.ops.vision.kernel_sampling import MOST, POINTS, interpolate, pieces


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
