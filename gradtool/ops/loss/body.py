"""Gradients of losses of class scores `[N, C, *d]` against labels `[N, *d]`."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Tensor, as_tensor
from gradtool.operators.losses import LEAST_VARIANCE, LOWEST_LOG, NO_CLASS
from gradtool.ops.shared.accumulation import widened
from gradtool.ops.shared.scatter import add_onto


@composite("SoftmaxCrossEntropyLossGrad")
def cross_entropy_grad(
    op: Builder, x: Tensor, labels: Tensor, weights: Tensor | None, dy: Tensor | None,
    dlog_prob: Tensor | None = None, *, reduction: str, ignore_index: int | None = None,
) -> Tensor:  # fmt: skip
    """`dx = g (p - onehot) + (dl - p Σ dl)`, p being the softmax of the scores.

    `dy` and `dlog_prob` are the gradients of the two outputs, either of which may be absent.
    """
    p = op.Softmax(x, axis=1)
    factor: Tensor | None = None
    if dy is not None:
        g, places = sample_gradients(op, x, labels, weights, dy, reduction, ignore_index)
        factor = g
    if dlog_prob is not None:
        total = op.sum(dlog_prob, [1], keepdims=True)
        factor = -total if factor is None else factor - total
    dx = p * as_tensor(factor)
    if dlog_prob is not None:
        dx = dx + dlog_prob
    return dx if dy is None else add_onto(op, dx, -g, places, 1)


def sample_gradients(
    op: Builder, x: Tensor, labels: Tensor, weights: Tensor | None, dy: Tensor, reduction: str,
    ignored: int | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradient of each sample's own loss and the place of its label, both `[N, 1, *d]`.

    An ignored sample has gradient 0, and place 0.
    """
    places = op.unsqueeze(labels, 1)
    if reduction == "none":
        dy = op.unsqueeze(dy, 1)
    counted = None
    if ignored is not None:
        counted = op.Not(op.Equal(places, ignored))
        places = op.Where(counted, places, 0)
    w = (
        op.expand(op.constant(1.0, x.dtype), places)
        if weights is None
        else op.Gather(weights, places)
    )
    if counted is not None:
        w = op.Where(counted, w, 0.0)
    if reduction == "mean":
        dy = dy / op.sum(w, range(len(places.shape)))
    g = w * dy
    return (g if counted is None else op.Where(counted, g, 0.0)), places


def label_weights(
    op: Builder, labels: Tensor, weights: Tensor | None, ignored: int | None, dtype: ir.DataType
) -> tuple[Tensor, Tensor]:
    """Mask of the labels that count, and the weight of each: its class's or 1, and 0 if ignored."""
    if ignored is None:
        everything = op.expand(op.constant(True, ir.DataType.BOOL), labels)
        return everything, op.Gather(weights, labels)
    counted = op.Not(op.Equal(labels, op.constant(ignored, labels.dtype)))
    if weights is None:
        return counted, op.Cast(counted, to=dtype)
    places = op.Where(counted, labels, op.constant(0, labels.dtype))
    return counted, op.Where(counted, op.Gather(weights, places), 0.0)


def refused_below_zero(op: Builder, labels: Tensor, ignored: int | None) -> Tensor:
    """Labels below 0, but for the ignored one, replaced by a class out of range.

    A negative label would count from the last class where it indexes scores; a class out of range
    every runtime refuses.
    """
    negative = op.Less(labels, op.constant(0, labels.dtype))
    if ignored is not None and ignored < 0:
        counted = op.Not(op.Equal(labels, op.constant(ignored, labels.dtype)))
        negative = op.And(negative, counted)
    return op.Where(negative, op.constant(NO_CLASS, labels.dtype), labels)


@composite("BinaryCrossEntropy")
def binary_cross_entropy(op: Builder, p: Tensor, t: Tensor) -> Tensor:
    """`-t · log p - (1 - t) · log(1 - p)`, element by element, with logarithms of at least -100.

    Source: PyTorch's `binary_cross_entropy`, whose bounds keep a wrong certainty finite.
    """
    wide = widened(p)
    p_, t_ = op.cast(p, wide), op.cast(t, wide)
    here, there = (op.Max(op.Log(v), LOWEST_LOG) for v in (p_, 1.0 - p_))
    return op.cast(-(t_ * here + (1.0 - t_) * there), p.dtype)


@composite("BinaryCrossEntropyGrad")
def binary_cross_entropy_grad(op: Builder, p: Tensor, t: Tensor, dy: Tensor) -> Tensor:
    """`dp = dy · (p - t) / max(p · (1 - p), 1e-12)`."""
    wide = widened(p)
    p_, t_, dy_ = (op.cast(v, wide) for v in (p, t, dy))
    return op.cast(dy_ * ((p_ - t_) / op.Max(p_ * (1.0 - p_), LEAST_VARIANCE)), p.dtype)
