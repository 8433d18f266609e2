"""Normalisation and its gradients."""

from __future__ import annotations

import math
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.norm import kernel_grad as backward
from gradtool.ops.norm.kernel_forward import Workspace, forward
from gradtool.ops.norm.kernel_layouts import Layout
from gradtool.ops.shared.types import Array, Arrays


def _forward(
    name: str, view: backward.View, spread: backward.Spread, *, centre: bool = True
) -> None:
    """Register the kernel that normalises a view of x, then scales it and adds a bias."""

    def work(x: Spec, scale: Spec, bias: Spec | None = None, **given: Any) -> list[Spec]:
        layout = view(x, scale, bias, **given)
        return Workspace.specs(layout, spread(scale, layout), centre=centre)

    @kernel(name, may_inplace=(0,), work=work)
    def run(
        xp: Any, x: Array, scale: Array, bias: Array | None = None, *, out: Arrays, work: Arrays,
        epsilon: float = 1e-5, **given: Any,
    ) -> None:  # fmt: skip
        """`(y, mean, 1/std)`, the latter of LayerNormalization: `[*x.shape[:axis], 1, …]`."""
        layout = view(x, scale, bias, **given)
        scale, bias = (None if p is None else p.reshape(spread(p, layout)) for p in (scale, bias))
        room = Workspace.of(xp, layout, work)
        forward(room, layout, x, scale, bias, out[0], out[1:], epsilon, centre=centre)


# ---------------------------------------------------------------- layer and RMS normalisation


def _layer(x: Array | Spec, *parameters: Spec | Array | None, axis: int = -1, **_: Any) -> Layout:
    """The view `[rows, D]` of x, or x itself where a parameter is broadcast; the axes."""
    axis %= max(1, len(x.shape))
    tail = tuple(x.shape[axis:])
    if all(p is None or tuple(p.shape) == tail for p in parameters):
        shape = (math.prod(x.shape[:axis]), math.prod(tail))
        return Layout.rows(shape, (1,), x.dtype)
    return Layout.rows(tuple(x.shape), tuple(range(axis, len(x.shape))), x.dtype)


def _spread(parameter: Array | Spec, layout: Layout) -> tuple[int, ...]:
    """The shape of a parameter with the rank of the view."""
    size, rank = math.prod(parameter.shape), len(layout.shape)
    if rank == 2 and size == layout.shape[1]:
        return (1, size)
    return (1,) * (rank - len(parameter.shape)) + tuple(parameter.shape)


_forward("LayerNormalization", _layer, _spread)
_forward("RMSNormalization", _layer, _spread, centre=False)


for _name, _operands, _centre in (
    ("LayerNormalizationGrad", "x scale mean rstd dy", True),
    ("RMSNormalizationGrad", "x scale dy", False),
):
    backward.register(_name, _operands, _layer, centre=_centre)


# -------------------------------------------------------- group and instance normalisation


def _group(
    x: Array | Spec, *_parameters: Spec | Array | None, num_groups: int | None = None, **_: Any
) -> Layout:
    """The view `[N, G, C/G, S]` of x; each channel is a group by default."""
    groups = x.shape[1] if num_groups is None else num_groups
    shape = (x.shape[0], groups, x.shape[1] // max(1, groups), math.prod(x.shape[2:]))
    return Layout.rows(shape, (2, 3), x.dtype)


def _by_channel(parameter: Array | Spec, layout: Layout) -> tuple[int, ...]:
    """The shape of a parameter per channel, or per group below opset 21, in that view."""
    groups = layout.shape[1]
    return (1, groups, parameter.shape[0] // max(1, groups), 1)


_forward("GroupNormalization", _group, _by_channel)
_forward("InstanceNormalization", _group, _by_channel)
backward.register("GroupNormalizationGrad", "x scale dy", _group, _by_channel)
