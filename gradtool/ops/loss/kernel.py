"""Losses of class scores `[N, C, *d]` against labels `[N, *d]`, some samples at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.operators.losses import LEAST_VARIANCE, LOWEST_LOG
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.blocks import pointwise
from gradtool.ops.shared.sums import accumulator, fitted, folded, line_work, lines
from gradtool.ops.shared.types import Array, Arrays, Index

SAMPLES, MOST = 512, 8192  # at once, here and on a device: index arrays of them are small change


class Labels:
    """The labels `[N, D]` of scores `[N, C, D]`, with the weight that each gives its sample."""

    def __init__(
        self,
        xp: Any,
        labels: Array,
        sizes: tuple[int, int, int],
        weights: Array | None,
        ignored: int | None,
    ) -> None:
        self.xp, self.weights, self.ignored = xp, weights, ignored
        self.labels = labels.reshape(sizes[0], sizes[2])
        self.sizes = sizes
        self.classes = sizes[1]

    def parts(self) -> Iterator[Any]:
        return lines(*self.sizes, at_a_time(SAMPLES, MOST))

    def at(self, index: Index) -> tuple[tuple[Array, Array, Array], Array]:
        """`(places, w)`: the index of each label in its block, and the weights `[n, 1, d]`."""
        from gradtool.ops.shared.bounds import within

        xp = self.xp
        labels = self.labels[index[0], index[2]]
        counted = xp.ones(labels.shape, bool) if self.ignored is None else labels != self.ignored
        labels = xp.where(counted, labels, 0)
        within(xp, labels, 0, self.classes, self._not_a_class)
        w = counted if self.weights is None else xp.where(counted, self.weights[labels], 0)
        rows, columns = np.indices(labels.shape, sparse=True)
        return (xp.asarray(rows), labels, xp.asarray(columns)), w

    def _not_a_class(self) -> UsageError:
        return UsageError(f"a label is not one of the {self.classes} classes of the scores")

    def total(self) -> float:
        """The sum of the weights of all samples."""
        total: float = sum(self.at(index)[1].sum(dtype=np.float64) for index in self.parts())
        return total


def _reduced(
    xp: Any, losses: Callable[..., Any], labels: Labels, out: Array | None, reduction: str
) -> None:
    """Write the losses, computed by parts in `losses(index, places)`, or their sum or mean.

    Where `out` is None they are computed all the same, for what they write on the way.
    """
    n, _, d = labels.sizes
    loss = weight = 0.0
    for index in labels.parts():
        places, w = labels.at(index)
        some = losses(index, places) * w
        if out is None:
            continue
        if reduction == "none":
            out.reshape(n, d)[index[0], index[2]] = some
        else:
            loss = loss + xp.where(w != 0, some, 0).sum(dtype=np.float64)
            weight = weight + w.sum(dtype=np.float64)
    if out is None:
        return
    if reduction == "sum":
        out[...] = loss
    elif reduction == "mean":
        out[...] = xp.divide(loss, weight)


@kernel("NegativeLogLikelihoodLoss")
def nll_loss(
    xp: Any, x: Array, labels: Array, weights: Array | None = None, *,
    out: Arrays, reduction: str = "mean", ignore_index: int | None = None,
) -> None:  # fmt: skip
    """`lₙ = -wₜ xₙₜ` with t the label of sample n; their mean is by weight."""
    sizes = folded(x.shape, 1)
    x = x.reshape(sizes)
    labels = Labels(xp, labels, sizes, weights, ignore_index)

    def losses(index: Index, places: Arrays) -> Array:
        return -x[index][places]

    _reduced(xp, losses, labels, out[0], reduction)


@kernel("SoftmaxCrossEntropyLoss", work=lambda x: line_work(x, 1, 2, 1, at_a_time(SAMPLES, MOST)))
def cross_entropy(
    xp: Any, x: Array, labels: Array, weights: Array | None = None, *,
    out: Arrays, work: Arrays, reduction: str = "mean", ignore_index: int | None = None,
) -> None:  # fmt: skip
    """`lₙ = wₜ (log Σ exp xₙ - xₙₜ)`, and the logarithms of the softmax."""
    sizes = folded(x.shape, 1)
    x = x.reshape(sizes)
    labels = Labels(xp, labels, sizes, weights, ignore_index)
    loss, log_prob = (*out, None)[:2]
    log_prob = None if log_prob is None else log_prob.reshape(sizes)

    def losses(index: Index, places: Arrays) -> Array:
        z, _, stat = _softened(xp, x[index], work)
        log_sum = xp.log(stat, out=stat)
        if log_prob is not None:
            xp.subtract(z, log_sum, out=log_prob[index], casting="unsafe")
        return log_sum[:, 0] - z[places]

    _reduced(xp, losses, labels, loss, reduction)


def _softened(xp: Any, x: Array, work: Arrays) -> tuple[Array, Array, Array]:
    """`(x - max x, exp of it, its sum)` along the middle axis."""
    z, e = fitted(work[0], x.shape), fitted(work[1], x.shape)
    stat = fitted(work[2], (x.shape[0], 1, x.shape[2]))
    xp.amax(x, axis=1, out=stat, keepdims=True)
    xp.subtract(x, stat, out=z, dtype=z.dtype)
    xp.exp(z, out=e)
    xp.sum(e, axis=1, out=stat, keepdims=True)
    return z, e, stat


def _grad_work(x: Spec) -> list[Spec]:
    return line_work(x, 1, 2, 1, at_a_time(SAMPLES, MOST))


@kernel("ai.gradtool::SoftmaxCrossEntropyLossGrad", may_inplace=(0,), work=_grad_work)
def cross_entropy_grad(
    xp: Any, x: Array, labels: Array, weights: Array | None, dy: Array,
    dlog_prob: Array | None = None, *,
    out: Arrays, work: Arrays, reduction: str, ignore_index: int | None = None,
) -> None:  # fmt: skip
    """`dx = g (p - onehot) + (dl - p Σ dl)` with p the softmax and g the weight of each sample."""
    sizes = folded(x.shape, 1)
    x, dx = x.reshape(sizes), out[0].reshape(sizes)
    labels = Labels(xp, labels, sizes, weights, ignore_index)
    scale = _scale(xp, labels, dy, reduction)
    for index in labels.parts():
        _, p, stat = _softened(xp, x[index], work)
        xp.divide(p, stat, out=p)
        places, w = labels.at(index)
        g = xp.where(w != 0, w * scale[index[0], index[2]], 0).astype(p.dtype)
        if dlog_prob is None:
            xp.multiply(p, g[:, None], out=p)
        else:
            dl = dlog_prob.reshape(sizes)[index]
            xp.sum(dl, axis=1, out=stat, keepdims=True, dtype=stat.dtype)
            xp.multiply(p, xp.subtract(g[:, None], stat, out=stat), out=p)
            xp.add(p, dl, out=p)
        p[places] -= g
        xp.copyto(dx[index], p, casting="unsafe")


def _scale(xp: Any, labels: Labels, dy: Array, reduction: str) -> Array:
    """Gradient by the loss of each sample, before its weight: an array `[N, D]`."""
    n, _, d = labels.sizes
    if dy is None:
        return xp.broadcast_to(xp.zeros((1, 1)), (n, d))
    if reduction == "none":
        return dy.reshape(n, d)
    dy = xp.asarray(dy, accumulator(dy.dtype)).reshape(1, 1)
    return xp.broadcast_to(dy / labels.total() if reduction == "mean" else dy, (n, d))


@pointwise("ai.gradtool::BinaryCrossEntropy", temporaries=3)
def binary_cross_entropy(
    xp: Any, p: Array, t: Array, out: Array, here: Array, there: Array, rest: Array
) -> None:
    xp.maximum(xp.log(p, out=here), LOWEST_LOG, out=here)
    xp.subtract(1, p, out=rest)
    xp.maximum(xp.log(rest, out=there), LOWEST_LOG, out=there)
    xp.subtract(1, t, out=rest)
    xp.multiply(rest, there, out=there)
    xp.multiply(t, here, out=here)
    xp.negative(xp.add(here, there, out=here), out=out)


@pointwise("ai.gradtool::BinaryCrossEntropyGrad", temporaries=2, may_inplace=(2,))
def binary_cross_entropy_grad(
    xp: Any, p: Array, t: Array, dy: Array, out: Array, variance: Array, error: Array
) -> None:
    xp.subtract(1, p, out=variance)
    xp.maximum(xp.multiply(p, variance, out=variance), LEAST_VARIANCE, out=variance)
    xp.divide(xp.subtract(p, t, out=error), variance, out=error)
    xp.multiply(dy, error, out=out)
