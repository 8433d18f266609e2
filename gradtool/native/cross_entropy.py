"""Softmax cross-entropy of scores `[N, C, …]` against labels `[N, …]`, and its gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtool.native.call import Array, Call, Signature

SIZES = "count classes after wide ignores ignored reduction slots"
CROSS_ENTROPY = Signature("cross_entropy", "x labels weights loss log_prob work strange", SIZES)
CROSS_ENTROPY_GRAD = Signature(
    "cross_entropy_grad", "x labels weights dy dlog_prob dx work strange", SIZES
)
SCORES = 16384  # of a chunk
REDUCTIONS = ("none", "sum", "mean")


def work(shape: tuple[int, ...]) -> int:
    """Bytes of workspace for scores of `shape`: two sums in double per chunk of samples."""
    n, classes, after = shape[0], shape[1], math.prod(shape[2:])
    lines = -(-max(1, SCORES // max(classes, 1)) // 16) * 16
    return 16 * (-(-n // lines) if after == 1 else n * -(-after // lines))


def _values(x: Array, labels: Array, reduction: str, ignore_index: int | None) -> dict[str, Any]:
    if labels.dtype not in (np.int32, np.int64):
        raise TypeError(f"labels of {labels.dtype}: int32 and int64 are known")
    return {
        "x": x, "labels": labels, "count": x.shape[0], "classes": x.shape[1],
        "after": math.prod(x.shape[2:]), "wide": int(labels.itemsize == 8),
        "ignores": int(ignore_index is not None), "ignored": ignore_index or 0,
        "reduction": REDUCTIONS.index(reduction),
    }  # fmt: skip


def cross_entropy(
    x: Array, labels: Array, weights: Array | None, loss: Array | None, log_prob: Array | None,
    work: Array, strange: Array, *, reduction: str = "mean", ignore_index: int | None = None,
) -> Call:  # fmt: skip
    """`lₙ = wₜ (log Σ exp xₙ - xₙₜ)` or their sum or mean, and the logarithms of the softmax.

    Labels are classes or `ignore_index`: the sample of another one is NaN, and `strange`, one
    integer of 64 bits, is 1 then, else 0.
    """
    return CROSS_ENTROPY.bind(
        weights=weights, loss=loss, log_prob=log_prob, work=work, strange=strange,
        **_values(x, labels, reduction, ignore_index),
    )  # fmt: skip


def cross_entropy_grad(
    x: Array, labels: Array, weights: Array | None, dy: Array | None, dlog_prob: Array | None,
    dx: Array, work: Array, strange: Array, *, reduction: str = "mean",
    ignore_index: int | None = None,
) -> Call:  # fmt: skip
    """`dx = g (p - onehot) + (dl - p Σ dl)` with p the softmax and g the weight of each sample.

    dx may be x; `strange` is as above.
    """
    return CROSS_ENTROPY_GRAD.bind(
        weights=weights, dy=dy, dlog_prob=dlog_prob, dx=dx, work=work, strange=strange,
        **_values(x, labels, reduction, ignore_index),
    )  # fmt: skip
