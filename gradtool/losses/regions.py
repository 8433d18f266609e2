"""Losses for rare classes (focal, dice), and of examples of a batch or two outputs together."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.losses.kinds import by_class, counts_of, loss, mean, mean_of, told_apart, total
from gradtool.ops.loss.body import label_weights


@loss("focal", labels="classes", said="focal loss")
def focal(
    op: Any, scores: Any, labels: Any, axis: int = -1, *, ignore: int | None = None,
    weight: Any = None, gamma: float = 2.0, counts: Any = None,
) -> Any:  # fmt: skip
    """`mean(w[label] · (1 - p)^gamma · -log p)`, p the probability of the label.

    Source: Lin et al. 2017 (arXiv:1708.02002); the mean is over labels that count.
    """
    scores, labels, counts = by_class(op, scores, labels, axis, counts)
    labels, ignored = told_apart(op, labels, ignore)
    how = {"reduction": "none", "ignore_index": ignored}
    rows = op.SoftmaxCrossEntropyLoss(scores, labels, None, **how)
    _, w = label_weights(op, labels, weight, ignored, scores.dtype)
    counted, _ = label_weights(op, labels, None, ignored, scores.dtype)
    rows = rows * op.Pow(1 - op.Exp(-rows), gamma) * w
    if counts is not None:
        return total(op, rows * counts) / total(op, op.Where(counted, counts, 0.0))
    return total(op, rows) / counts_of(op, counted, scores.dtype)


@loss("focal-logits", labels="like", said="focal loss of logits")
def focal_logits(
    op: Any, y: Any, t: Any, *, gamma: float = 2.0, alpha: float = 0.25, counts: Any = None
) -> Any:
    """`mean(αₜ · (1 - pₜ)^gamma · bce)` with αₜ = alpha at t = 1, and 1 - alpha at t = 0.

    Source: torchvision's `sigmoid_focal_loss`.
    """
    p = op.Sigmoid(y)
    apart = p * (1 - t) + (1 - p) * t
    share = t * (2 * alpha - 1) + (1 - alpha)
    return mean_of(op, share * op.Pow(apart, gamma) * (op.Softplus(y) - y * t), counts)


@loss("dice", labels="classes", said="dice loss")
def dice(
    op: Any, scores: Any, labels: Any, axis: int = -1, *, ignore: int | None = None,
    smooth: float = 1.0,
) -> Any:  # fmt: skip
    """`mean(1 - (2 Σ p·t + smooth) / (Σ p + Σ t + smooth))` over examples and classes.

    p is the softmax of the scores, t the label as one of 0 and 1; sums are over the places of an
    example whose labels count.

    Source: Milletari et al. 2016 (arXiv:1606.04797), with smoothing as it is mostly used.
    """
    rank = len(scores.shape)
    axis %= rank
    rest = [i for i in range(1, rank) if i != axis]
    scores = op.transpose(scores, [0, axis, *rest])
    labels, ignored = told_apart(op, labels, ignore)
    counted, _ = label_weights(op, labels, None, ignored, scores.dtype)
    classes = np.arange(scores.shape[1]).reshape(1, -1, *[1] * len(rest))
    own = op.Equal(op.unsqueeze(op.Cast(labels, to=ir.DataType.INT64), 1), op.constant(classes))
    mask = op.unsqueeze(op.Cast(counted, to=scores.dtype), 1)
    p, t = op.Softmax(scores, axis=1) * mask, op.Cast(own, to=scores.dtype) * mask
    return _overlap(op, p, t, list(range(2, rank)), smooth)


@loss("dice-logits", labels="like", said="dice loss of logits")
def dice_logits(op: Any, y: Any, t: Any, *, smooth: float = 1.0) -> Any:
    """`mean(1 - (2 Σ p·t + smooth) / (Σ p + Σ t + smooth))` over examples, p being σ(y)."""
    return _overlap(op, op.Sigmoid(y), t, list(range(1, len(y.shape))), smooth)


def _overlap(op: Any, p: Any, t: Any, axes: list[int], smooth: float) -> Any:
    """The mean of `1 - (2 Σ p·t + smooth) / (Σ p + Σ t + smooth)`, with sums over axes."""
    both = op.sum(p * t, axes) * 2 + smooth
    return mean(op, 1 - both / (op.sum(p, axes) + op.sum(t, axes) + smooth))


LEAST_SQUARE = 1e-12  # of a distance or a norm, whose root has a slope then
FAR = 1e9  # a distance that no margin reaches


@loss("triplet", labels="classes", said="triplet loss, hardest in the batch")
def triplet(op: Any, y: Any, labels: Any, *, margin: float = 0.3) -> Any:
    """`mean(max(margin + max d(same) - min d(other), 0))`, d being Euclidean distances.

    Each embedding `[N, D]` is held against all of its batch, so parts of it do not add up.

    Source: Hermans et al. 2017 (arXiv:1703.07737), "batch hard".
    """
    _require_rows("triplet", y)
    squares = op.sum(y * y, [1])
    products = op.MatMul(y, op.transpose(y, [1, 0]))
    apart = op.unsqueeze(squares, 1) + op.unsqueeze(squares, 0) - products * 2
    apart = op.Sqrt(op.Max(apart, LEAST_SQUARE))
    same = op.Equal(op.unsqueeze(labels, 1), op.unsqueeze(labels, 0))
    far = op.ReduceMax(op.Where(same, apart, 0.0), [1], keepdims=0)
    near = op.ReduceMin(op.Where(same, FAR, apart), [1], keepdims=0)
    return mean(op, op.Relu(far - near + margin))


@loss("contrastive", said="contrastive loss in the batch", outputs=2)
def contrastive(op: Any, a: Any, b: Any, *, T: float = 0.07) -> Any:
    """The mean of `ce(a·bᵀ / T, row)` by rows and by columns, a and b of norm 1, both `[N, D]`.

    Each pair is held against all of its batch, so parts of it do not add up.

    Source: Radford et al. 2021 (arXiv:2103.00020), the loss of CLIP (InfoNCE).
    """
    _require_rows("contrastive", a)
    _require_rows("contrastive", b)
    a, b = (_normalized(op, v) for v in (a, b))
    scores = op.MatMul(a, op.transpose(b, [1, 0])) / T
    own = op.sum(a * b, [1]) / T
    by_row, by_column = (op.ReduceLogSumExp(scores, [axis], keepdims=0) for axis in (1, 0))
    return (mean(op, by_row - own) + mean(op, by_column - own)) / 2


@loss("distill", said="distillation", outputs=2)
def distill(op: Any, student: Any, teacher: Any, *, T: float = 2.0) -> Any:
    """`T² · mean(Σ q · (log q - log p))`, p and q the softmax of student / T and teacher / T.

    Classes lie on the last axis.  No gradient flows to the teacher.

    Source: Hinton et al. 2015 (arXiv:1503.02531).
    """
    told = op.Identity(teacher)
    op.stopped.add(told)
    wanted, found = (op.LogSoftmax(v / T, axis=-1) for v in (told, student))
    apart = op.sum(op.Exp(wanted) * (wanted - found), [len(student.shape) - 1])
    return mean(op, apart) * (T * T)


def _normalized(op: Any, v: Any) -> Any:
    """Rows of norm 1."""
    return v / op.Sqrt(op.Max(op.sum(v * v, [1], keepdims=True), LEAST_SQUARE))


def _require_rows(name: str, v: Any) -> None:
    if len(v.shape) != 2:
        raise UsageError(f"--loss {name}: {v.name!r} has shape {v.shape}; it needs [N, D]")
