"""Batch normalisation and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.norm import kernel_grad as backward
from gradtool.ops.norm.kernel_forward import Workspace, forward, scaled
from gradtool.ops.norm.kernel_layouts import Layout, like, pick
from gradtool.ops.shared.types import Array, Arrays


def _train_work(x: Spec) -> list[Spec]:
    layout = _channels(x)
    channel = Spec((x.shape[1],), layout.wide)
    return [*Workspace.specs(layout, layout.statistics), channel, channel, channel]


def _batch_work(x: Spec, *, training_mode: int = 0) -> list[Spec]:
    if training_mode:
        return _train_work(x)
    layout = Layout.plain(tuple(x.shape), x.dtype)
    narrow = layout.wide != layout.dtype
    return [layout.block() if narrow else Spec((0,), x.dtype), Spec((x.shape[1],), layout.wide)]


@kernel("BatchNormalization", may_inplace=(0,), work=_batch_work)
def batch_normalization(
    xp: Any, x: Array, scale: Array, bias: Array, mean: Array, var: Array, *, out: Arrays,
    work: Arrays, epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
) -> None:  # fmt: skip
    """Normalise by running statistics, or in training by the batch's, which move the former."""
    if training_mode:
        _train(xp, (x, scale, bias, mean, var), out, work, epsilon, momentum)
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
    xp: Any, operands: Arrays, out: Sequence[Array | None], work: Arrays, epsilon: float,
    momentum: float,
) -> None:  # fmt: skip
    """`(y, running mean and variance, mean and 1/std of the batch)`, as they are wanted."""
    x, scale, bias, mean, var = operands
    y, *running, saved_mean, saved_rstd = (*out, *[None] * 5)[:5]
    *buffers, found_mean, found_rstd, found_var = work
    layout = _channels(x)
    scale, bias = (p.reshape(1, -1, 1) for p in (scale, bias))
    forward(
        Workspace.of(xp, layout, buffers), layout, x, scale, bias, y, (found_mean, found_rstd),
        epsilon,
        variance=found_var.reshape(layout.statistics),
    )  # fmt: skip
    for target, value in ((saved_mean, found_mean), (saved_rstd, found_rstd)):
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
    _train(xp, (x, scale, bias, mean, var), out, work, epsilon, momentum)


def _channels(x: Array | Spec, _scale: Any = None, **_: Any) -> Layout:
    return Layout.channels(tuple(x.shape), x.dtype)


def _statistics(_scale: Any, layout: Layout) -> tuple[int, ...]:
    return layout.statistics


backward.register("BatchNormalizationGrad", "x scale mean rstd dy", _channels, _statistics)
backward.register("BatchNormalizationGradScale", "x mean rstd dy", _channels, _statistics)
