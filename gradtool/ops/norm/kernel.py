"""Normalisation and its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.norm import kernel_grad as backward
from gradtool.ops.norm.kernel_forward import Workspace, forward
from gradtool.ops.norm.kernel_layouts import Layout
from gradtool.ops.shared.types import Array, Arrays, Specs

# ---------------------------------------------------------------- layer and RMS normalisation


def _layer(x: Array | Spec, axis: int, *parameters: Spec | Array) -> Layout:
    """The view `[rows, D]` of x, or x itself where a parameter is broadcast; the axes."""
    axis %= max(1, len(x.shape))
    tail = tuple(x.shape[axis:])
    if all(p is None or tuple(p.shape) == tail for p in parameters):
        shape = (math.prod(x.shape[:axis]), math.prod(tail))
        return Layout.rows(shape, (1,), x.dtype)
    return Layout.rows(tuple(x.shape), tuple(range(axis, len(x.shape))), x.dtype)


def _spread(parameter: Array | None, layout: Layout) -> Array | None:
    """A parameter with the rank of the view."""
    return None if parameter is None else parameter.reshape(_spread_shape(parameter, layout))


def _spread_shape(parameter: Array | Spec, layout: Layout) -> tuple[int, ...]:
    size, rank = math.prod(parameter.shape), len(layout.shape)
    if rank == 2 and size == layout.shape[1]:
        return (1, size)
    return (1,) * (rank - len(parameter.shape)) + tuple(parameter.shape)


def _layer_work(
    x: Spec,
    scale: Spec,
    bias: Spec | None = None,
    *,
    out: Sequence[Spec | None],
    axis: int = -1,
    **_: Any,
) -> list[Spec]:
    layout = _layer(x, axis, scale, bias)
    return Workspace.specs(layout, _spread_shape(scale, layout))


def _rms_work(x: Spec, scale: Spec, *, out: Specs, axis: int = -1, **_: Any) -> list[Spec]:
    layout = _layer(x, axis, scale)
    return Workspace.specs(layout, _spread_shape(scale, layout), centre=False)


@kernel("LayerNormalization", may_inplace=(0,), work=_layer_work)
def layer_normalization(
    xp: Any,
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    out: Arrays,
    work: Arrays,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> None:
    """`(y, mean, 1/std)`; the statistics have shape `[*x.shape[:axis], 1, …]`."""
    layout = _layer(x, axis, scale, bias)
    scale, bias = _spread(scale, layout), _spread(bias, layout)
    forward(Workspace.of(xp, layout, work), layout, x, scale, bias, out[0], out[1:], epsilon)


@kernel("RMSNormalization", may_inplace=(0,), work=_rms_work)
def rms_normalization(
    xp: Any,
    x: Array,
    scale: Array,
    *,
    out: Arrays,
    work: Arrays,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> None:
    """`y = x / sqrt(mean(x²) + epsilon) · scale`."""
    layout = _layer(x, axis, scale)
    scale = _spread(scale, layout)
    forward(
        Workspace.of(xp, layout, work), layout, x, scale, None, out[0], (), epsilon, centre=False
    )


def _layer_grad_work(
    x: Spec,
    scale: Spec,
    mean: Spec | None,
    rstd: Spec | None,
    dy: Spec,
    *,
    out: Sequence[Spec | None],
    axis: int,
    epsilon: float,
) -> list[Spec]:
    return backward.Work.for_rows(_layer(x, axis, scale), known=rstd is not None)


@kernel("ai.gradtool::LayerNormalizationGrad", may_inplace=(4, 0), work=_layer_grad_work)
def layer_normalization_grad(
    xp: Any,
    x: Array,
    scale: Array,
    mean: Array | None,
    rstd: Array | None,
    dy: Array,
    *,
    out: Arrays,
    work: Arrays,
    axis: int,
    epsilon: float,
) -> None:
    """The gradients of LayerNormalization, from its statistics or without them."""
    layout = _layer(x, axis, scale)
    backward.rows(xp, layout, x, scale, (mean, rstd), dy, out, epsilon, work)


def _rms_grad_work(
    x: Spec, scale: Spec, dy: Spec, *, out: Sequence[Spec | None], axis: int, epsilon: float
) -> list[Spec]:
    return backward.Work.for_rows(_layer(x, axis, scale), known=False, centre=False)


@kernel("ai.gradtool::RMSNormalizationGrad", may_inplace=(2, 0), work=_rms_grad_work)
def rms_normalization_grad(
    xp: Any,
    x: Array,
    scale: Array,
    dy: Array,
    *,
    out: Arrays,
    work: Arrays,
    axis: int,
    epsilon: float,
) -> None:
    """The gradients of RMSNormalization."""
    layout = _layer(x, axis, scale)
    backward.rows(xp, layout, x, scale, (None, None), dy, out, epsilon, work, centre=False)


# -------------------------------------------------------- group and instance normalisation


def _group(x: Array | Spec, groups: int) -> Layout:
    """The view `[N, G, C/G, S]` of x."""
    shape = (x.shape[0], groups, x.shape[1] // max(1, groups), math.prod(x.shape[2:]))
    return Layout.rows(shape, (2, 3), x.dtype)


def _by_channel(scale: Array | Spec, groups: int) -> tuple[int, int, int, int]:
    """The shape of a parameter with the rank of that view."""
    return (1, groups, scale.shape[0] // max(1, groups), 1)


def _group_work(
    x: Spec, scale: Spec, bias: Spec, *, out: Specs, num_groups: int, **_: Any
) -> list[Spec]:
    return Workspace.specs(_group(x, num_groups), _by_channel(scale, num_groups))


@kernel("GroupNormalization", may_inplace=(0,), work=_group_work)
def group_normalization(
    xp: Any,
    x: Array,
    scale: Array,
    bias: Array,
    *,
    out: Arrays,
    work: Arrays,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> None:
    """Scale and bias are per channel, or per group below opset 21."""
    layout = _group(x, num_groups)
    scale, bias = (p.reshape(1, num_groups, -1, 1) for p in (scale, bias))
    forward(Workspace.of(xp, layout, work), layout, x, scale, bias, out[0], (), epsilon)


def _instance_work(
    x: Spec, scale: Spec, bias: Spec, *, out: Specs, epsilon: float = 1e-5
) -> list[Spec]:
    return Workspace.specs(_group(x, x.shape[1]), _by_channel(scale, x.shape[1]))


@kernel("InstanceNormalization", may_inplace=(0,), work=_instance_work)
def instance_normalization(
    xp: Any,
    x: Array,
    scale: Array,
    bias: Array,
    *,
    out: Arrays,
    work: Arrays,
    epsilon: float = 1e-5,
) -> None:
    """Normalise each channel of each example by its own statistics."""
    layout = _group(x, x.shape[1])
    scale, bias = (p.reshape(1, -1, 1, 1) for p in (scale, bias))
    forward(Workspace.of(xp, layout, work), layout, x, scale, bias, out[0], (), epsilon)


def _group_grad_work(
    x: Spec, scale: Spec, dy: Spec, *, out: Sequence[Spec | None], num_groups: int, epsilon: float
) -> list[Spec]:
    slopes = out[0] is not None
    shape = _by_channel(scale, num_groups)
    return backward.Work.for_planes(_group(x, num_groups), shape, slopes=slopes)


@kernel("ai.gradtool::GroupNormalizationGrad", may_inplace=(2, 0), work=_group_grad_work)
def group_normalization_grad(
    xp: Any,
    x: Array,
    scale: Array,
    dy: Array,
    *,
    out: Arrays,
    work: Arrays,
    num_groups: int,
    epsilon: float,
) -> None:
    """The gradients of GroupNormalization."""
    layout = _group(x, num_groups)
    shape = _by_channel(scale, num_groups)
    backward.planes(xp, layout, x, scale, (None, None), dy, out, epsilon, work, shape)
