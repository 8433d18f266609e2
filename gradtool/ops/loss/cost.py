"""Losses: operations per score, and per sample."""

from __future__ import annotations

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
    _: Shaped, labels: Shaped, weights: Shaped | None = None, *,
    out: Results, reduction: str = "mean", **__: Any,
) -> int:  # fmt: skip
    """`lₙ = -wₜ xₙₜ`, of a sample n with label t."""
    del out
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
    dlog_prob: Shaped | None = None, *, out: Results, reduction: str, **_: Any,
) -> int:  # fmt: skip
    """`dx = g (p - onehot) + (dl - p Σ dl)`, with p the softmax and `g = wₜ dy / Σ w`."""
    del out
    samples = size(labels)
    count = 6 * size(x) + samples + _weighted(samples, weights)
    if dy is not None and reduction == "mean":
        count += samples + 1
    return count + (2 * size(x) + samples if dlog_prob is not None else 0)
