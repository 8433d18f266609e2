"""Losses: operations per score, and per sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.ops.costs import cost
from gradtool.ops.shared.element_counts import Results, Shaped, size, wanted


def _reduced(samples: int, reduction: str) -> int:
    """The sum of the losses; for the mean that of the weights too, and a division."""
    return {"none": 0, "sum": samples, "mean": 2 * samples + 1}[reduction]


def _weighted(samples: int, weights: Shaped | None) -> int:
    return samples if weights is not None else 0


@cost("NegativeLogLikelihoodLoss")
def nll_loss(
    _: Shaped, labels: Shaped, weights: Shaped | None = None, *, reduction: str = "mean"
) -> int:
    """`lₙ = -wₜ xₙₜ`, of a sample n with label t."""
    samples = size(labels)
    return samples + _weighted(samples, weights) + _reduced(samples, reduction)


@cost("SoftmaxCrossEntropyLoss")
def cross_entropy(
    x: Shaped, labels: Shaped, weights: Shaped | None = None, *,
    out: Results, reduction: str = "mean", **_: Any,
) -> int:  # fmt: skip
    """`lₙ = wₜ (log Σ exp zₙ - zₙₜ)` with `z = x - max x`; `z - log Σ exp z` if it is wanted."""
    samples = size(labels)
    scores = (5 if wanted(out, 1) else 4) * size(x)
    return scores + 2 * samples + _weighted(samples, weights) + _reduced(samples, reduction)


@cost("ai.gradtool::SoftmaxCrossEntropyLossGrad")
def cross_entropy_grad(
    x: Shaped, labels: Shaped, weights: Shaped | None, dy: Shaped | None,
    dlog_prob: Shaped | None = None, *, reduction: str,
) -> int:  # fmt: skip
    """`dx = g (p - onehot) + (dl - p Σ dl)`, with p the softmax and `g = wₜ dy / Σ w`."""
    samples = size(labels)
    count = 6 * size(x) + samples + _weighted(samples, weights)
    if dy is not None and reduction == "mean":
        count += samples + 1
    return count + (2 * size(x) + samples if dlog_prob is not None else 0)


def _scored(
    x: Shaped, w: Shaped, bias: Shaped | None, low: Shaped | None = None, _up: Any = None,
    _scale: Any = None, _zero: Any = None, groups: Shaped | None = None, *,
    scale: float = 1.0, softcap: float = 0.0, transB: int = 0, **coding: Any,
) -> tuple[int, int]:  # fmt: skip
    """How many scores there are, and the operations that make them, and decode their weights."""
    scores = x.shape[0] * w.shape[0 if transB else 1]
    each = 2 * x.shape[1] + (scale != 1) + (bias is not None) + 3 * (softcap > 0)
    each += 0 if low is None else 2 * low.shape[1] + 1
    numbers = 0
    if coding.get("bits"):
        numbers = size(w) * 8 // coding["bits"] if groups is None else w.shape[0] * x.shape[1]
    return scores, scores * each + numbers * (1 if coding.get("values") else 2)


@cost("ai.gradtool::LinearCrossEntropy")
def linear_cross_entropy(
    x: Shaped, _labels: Shaped, w: Shaped, bias: Shaped | None = None,
    weights: Shaped | None = None, *more: Shaped | None, even: int = 0, **given: Any,
) -> int:  # fmt: skip
    """`z = cap(scale · x W + bias)`, then `max`, `z - max`, `exp` and a sum of each block."""
    scores, count = _scored(x, w, bias, *more, **given)
    share = scores * (2 if weights is not None else 1) if even else 0
    return count + 4 * scores + share + 5 * x.shape[0]


@cost("ai.gradtool::LinearCrossEntropyGrad")
def linear_cross_entropy_grad(
    x: Shaped, _labels: Shaped, w: Shaped, bias: Shaped | None, _weights: Shaped | None,
    _lse: Shaped, _of_all: Shaped, _of_label: Shaped, of_even: Shaped | None = None,
    low: Shaped | None = None, *more: Shaped | None, out: Results, of: Sequence[int],
    scale: float = 1.0, softcap: float = 0.0, **given: Any,
) -> int:  # fmt: skip
    """`dz = of_all · exp(z - lse) - of_label · onehot`, z computed again; two products."""
    scores, count = _scored(x, w, bias, low, *more, scale=scale, softcap=softcap, **given)
    there = [i for i, d in zip(of, out, strict=True) if d is not None]
    rank = 0 if low is None else low.shape[1]
    depths = {0: x.shape[1], 1: x.shape[1], 3: rank, 4: rank}
    products = sum(2 * depths.get(i, 0) * scores for i in there)
    share = 2 * scores if of_even is not None else 0
    slope = 3 * scores if softcap > 0 else 0
    rest = (scale != 1) * scores + (2 in there) * scores
    return count + products + 3 * scores + share + slope + rest + x.shape[0]
