"""Losses that hold examples of a batch, or two outputs, against each other."""

from __future__ import annotations

from typing import Any

from gradtool.errors import UsageError
from gradtool.losses.kinds import loss, mean

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
