"""Batch normalisation and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.norm import kernel_grad as backward
from gradtool.ops.norm.kernel_forward import Workspace, forward, scaled
from gradtool.ops.norm.kernel_layouts import Layout, like, pick
from gradtool.ops.shared.types import Array, Arrays, Specs


def _train_work(
    x: Spec, scale: Spec, bias: Spec, mean: Spec, var: Spec, *, out: Sequence[Spec | None], **_: Any
) -> list[Spec]:
    layout = Layout.channels(tuple(x.shape), x.dtype)
    channel = Spec((x.shape[1],), layout.wide)
    return [*Workspace.specs(layout, layout.statistics), channel, channel, channel]


def _batch_work(
    x: Spec, scale: Spec, bias: Spec, mean: Spec, var: Spec, *,
    out: Sequence[Spec | None], training_mode: int = 0,
) -> list[Spec]:  # fmt: skip
    if training_mode:
        return _train_work(x, scale, bias, mean, var, out=out)
    layout = Layout.plain(tuple(x.shape), x.dtype)
    narrow = layout.wide != layout.dtype
    return [layout.block() if narrow else Spec((0,), x.dtype), Spec((x.shape[1],), layout.wide)]


@kernel("BatchNormalization", may_inplace=(0,), work=_batch_work)
def batch_normalization(
    xp: Any, x: Array, scale: Array, bias: Array, mean: Array, var: Array, *, out: Arrays,
    work: Arrays, epsilon: float = 1e-05, momentum: float = 0.9, training_mode: int = 0,
) -> None:  # fmt: skip
    """Normalise by running statistics, or in training by the batch's, which move the former."""
    if training_mode:
        statistics = (*out[1:], None, None)[:2]
        _train(xp, x, scale, bias, mean, var, out[0], statistics, (), epsilon, momentum, work)
        return
    layout = Layout.plain(tuple(x.shape), x.dtype)
    block, factor = work
    xp.add(var, epsilon, out=factor, casting="unsafe")
    xp.sqrt(factor, out=factor)
    xp.divide(scale, factor, out=factor)
    x, y = x.reshape(layout.shape), out[0].reshape(layout.shape)
    mean, factor, bias = (p.reshape(1, -1, 1) for p in (mean, factor, bias))
    direct = y.dtype == layout.wide
    for (index,) in layout.blocks():
        n = y[index] if direct else like(block, y[index].shape)
        xp.subtract(x[index], pick(mean, index), out=n, casting="unsafe")
        scaled(xp, n, factor, bias, index, y[index])


def _train(
    xp: Any,
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
    y: Array | None,
    running: Sequence[Array | None],
    saved: Sequence[Array | None],
    epsilon: float,
    momentum: float,
    work: Arrays,
) -> None:
    """Normalise by the batch; `running` and `saved` take the wanted statistics."""
    *buffers, found_mean, found_rstd, found_var = work
    layout = Layout.channels(tuple(x.shape), x.dtype)
    scale, bias = (p.reshape(1, -1, 1) for p in (scale, bias))
    forward(
        Workspace.of(xp, layout, buffers), layout, x, scale, bias, y, (found_mean, found_rstd),
        epsilon,
        variance=found_var.reshape(layout.statistics),
    )  # fmt: skip
    for target, value in zip(saved, (found_mean, found_rstd), strict=False):
        if target is not None:
            xp.copyto(target, value, casting="unsafe")
    for target, before, value in zip(running, (mean, var), (found_mean, found_var), strict=True):
        if target is not None:
            xp.multiply(value, 1 - momentum, out=value)
            xp.multiply(before, momentum, out=found_rstd, casting="unsafe")
            xp.add(value, found_rstd, out=target, casting="unsafe")


@kernel("ai.gradtool::BatchNormalizationTraining", may_inplace=(0,), work=_train_work)
def batch_normalization_training(
    xp: Any, x: Array, scale: Array, bias: Array, mean: Array, var: Array, *,
    out: Arrays, work: Arrays, epsilon: float, momentum: float,
) -> None:  # fmt: skip
    """Normalise by the statistics of a batch; running ones move towards these."""
    y, new_mean, new_var, *saved = out
    _train(xp, x, scale, bias, mean, var, y, (new_mean, new_var), saved, epsilon, momentum, work)


def _batch_grad_work(
    x: Spec, scale: Spec | None, mean: Spec | None, rstd: Spec | None, dy: Spec, *,
    out: Sequence[Spec | None], epsilon: float,
) -> list[Spec]:  # fmt: skip
    layout = Layout.channels(tuple(x.shape), x.dtype)
    return backward.Work.for_planes(layout, layout.statistics, slopes=out[0] is not None)


@kernel("ai.gradtool::BatchNormalizationGrad", may_inplace=(4, 0), work=_batch_grad_work)
def batch_normalization_grad(
    xp: Any, x: Array, scale: Array, mean: Array | None, rstd: Array | None, dy: Array, *,
    out: Arrays, work: Arrays, epsilon: float,
) -> None:  # fmt: skip
    """The gradients of input, scale and bias by statistics of the batch, or by given ones."""
    layout = Layout.channels(tuple(x.shape), x.dtype)
    shape = layout.statistics
    backward.planes(xp, layout, x, scale, (mean, rstd), dy, out, epsilon, work, shape)


def _projection_work(x: Spec, mean: Spec, rstd: Spec, dy: Spec, *, out: Specs) -> list[Spec]:
    return _batch_grad_work(x, None, mean, rstd, dy, out=(None, *out), epsilon=0)


@kernel("ai.gradtool::BatchNormalizationGradScale", work=_projection_work)
def batch_normalization_grad_scale(
    xp: Any, x: Array, mean: Array, rstd: Array, dy: Array, *, out: Arrays, work: Arrays
) -> None:
    """The gradient of scale: Σ dy · (x − mean) · rstd, by channel."""
    layout = Layout.channels(tuple(x.shape), x.dtype)
    shape, wanted = layout.statistics, (None, out[0])
    backward.planes(xp, layout, x, None, (mean, rstd), dy, wanted, 0, work, shape)
