"""Softmax cross-entropy of class scores against labels, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtool.errors import UsageError
from gradtool.graph.specs import Spec
from gradtool.native import cross_entropy as library
from gradtool.ops.native import Bound, are_floats, in_turn, native, room
from gradtool.ops.shared.types import Array, Arrays

Outputs = Sequence[Spec | None]
LABELS = (np.dtype(np.int32), np.dtype(np.int64))


def _fits(x: Spec, labels: Spec, *others: Spec | None, out: Outputs) -> bool:
    floats = are_floats(x, *others, *out) and labels.dtype in LABELS
    return floats and len(x.shape) > 1 and 0 not in x.shape


def _work(x: Spec) -> list[Spec]:
    return room(library.work(x.shape))


def checked(call: Bound, strange: Array, classes: int) -> Bound:
    """A call that raises UsageError afterwards for a label out of range."""

    def check() -> None:
        if strange.item():
            raise UsageError(f"a label is not one of the {classes} classes of the scores")

    return in_turn(call, check)


@native("SoftmaxCrossEntropyLoss", fits=_fits, work=_work)
def cross_entropy(
    x: Array, labels: Array, weights: Array | None = None, *, out: Arrays, work: Arrays,
    reduction: str = "mean", ignore_index: int | None = None,
) -> Bound:  # fmt: skip
    """`lₙ = wₜ (log Σ exp xₙ - xₙₜ)`, and the logarithms of the softmax."""
    loss, log_prob = (*out, None)[:2]
    strange = np.zeros(1, np.int64)
    call = library.cross_entropy(
        x, labels, weights, loss, log_prob, work[0], strange, reduction=reduction,
        ignore_index=ignore_index,
    )  # fmt: skip
    return checked(call, strange, x.shape[1])


@native("ai.gradtool::SoftmaxCrossEntropyLossGrad", fits=_fits, work=_work)
def cross_entropy_grad(
    x: Array, labels: Array, weights: Array | None, dy: Array | None,
    dlog_prob: Array | None = None, *, out: Arrays, work: Arrays, reduction: str,
    ignore_index: int | None = None,
) -> Bound:  # fmt: skip
    """`dx = g (p - onehot) + (dl - p Σ dl)` with p the softmax and g the weight of each sample."""
    strange = np.zeros(1, np.int64)
    call = library.cross_entropy_grad(
        x, labels, weights, dy, dlog_prob, out[0], work[0], strange, reduction=reduction,
        ignore_index=ignore_index,
    )  # fmt: skip
    return checked(call, strange, x.shape[1])
