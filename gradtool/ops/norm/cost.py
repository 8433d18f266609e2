"""Normalisation: operations per element, and per statistic.

With N elements and R statistics, the mean takes N + R operations, the variance 3 N + R (the centred
numbers included), and `1 / √(variance + epsilon)` 3 R.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.ops.costs import cost, counts
from gradtool.ops.shared.element_counts import Results, Shaped, lines, made, size, wanted


def _rows(x: Shaped, axis: int) -> int:
    rank = len(x.shape)
    return lines(x.shape, range(axis % rank, rank)) if rank else 1


def _groups(x: Shaped, count: int) -> int:
    return x.shape[0] * count


@cost("LayerNormalization")
def layer_normalization(x: Shaped, _: Shaped, bias: Shaped | None = None, *, axis: int = -1) -> int:
    """`(x - mean) · rstd · scale + bias`."""
    return (7 if bias is not None else 6) * size(x) + 5 * _rows(x, axis)


def _by_batch(x: Shaped, out: Results) -> int:
    """Normalised by the batch; a running statistic is `momentum · old + (1 - momentum) · new`."""
    channels = x.shape[1]
    running = sum(wanted(out, index) for index in (1, 2))
    return 7 * size(x) + 5 * channels + 3 * channels * running


@cost("BatchNormalization")
def batch_normalization(x: Shaped, *, out: Results, training_mode: int = 0) -> int:
    """`(x - mean) · (scale / √(var + epsilon)) + bias`."""
    return _by_batch(x, out) if training_mode else 3 * size(x) + 3 * x.shape[1]


def _by_plane(x: Shaped, statistics: int, out: Results) -> int:
    """`dx = factor · dy - n · m₂ - m₁`, with `factor = rstd · scale` and the means m of the sums.

    The sums take 5 N: `n = (x - mean) · rstd`, `dscale = Σ dy · n`, `dbias = Σ dy`.
    """
    return 5 * size(x) + (4 * size(x) + 4 * statistics if wanted(out, 0) else 0)


@cost("ai.gradtool::GroupNormalizationGrad")
def group_normalization_grad(x: Shaped, *, out: Results, num_groups: int) -> int:
    """The statistics are computed again; the centred numbers serve twice."""
    groups = _groups(x, num_groups)
    return 3 * size(x) + 5 * groups + _by_plane(x, groups, out)


def _by_row(n: int, rows: int, out: Results, *, centre: bool) -> int:
    """From `n`, computed: `dx = rstd · (dn - mean(dn) - n · mean(dn · n))` with `dn = dy · scale`.

    `dscale = Σ dy · n`, `dbias = Σ dy`; of a single row there is nothing to add up.
    """
    added = n if rows > 1 else 0
    count = 0
    if wanted(out, 0):
        count += (8 * n + 2 * rows) if centre else (6 * n + rows)
    if wanted(out, 1):
        count += n + added
    return count + (added if wanted(out, 2) else 0)


@cost("ai.gradtool::LayerNormalizationGrad")
def layer_normalization_grad(
    x: Shaped, _: Shaped, mean: Any, rstd: Any, *, out: Results, axis: int
) -> int:
    """By the statistics that the forward pass kept, or computed again."""
    n, rows = size(x), _rows(x, axis)
    again = 0 if mean is not None and rstd is not None else 3 * n + 5 * rows
    return again + 2 * n + _by_row(n, rows, out, centre=True)


@cost("ai.gradtool::RMSNormalizationGrad")
def rms_normalization_grad(x: Shaped, *, out: Results, axis: int) -> int:
    """The mean square is computed again."""
    n, rows = size(x), _rows(x, axis)
    return 3 * n + 4 * rows + _by_row(n, rows, out, centre=False)


@cost("LpNormalization")
def lp_normalization(x: Shaped, *, axis: int = -1, p: int = 2) -> int:
    """`x / |x|ₚ`."""
    return 3 * size(x) + (lines(x.shape, [axis]) if p == 2 else 0)


@cost("MeanVarianceNormalization")
def mean_variance_normalization(x: Shaped, *, axes: Sequence[int] = (0, 2, 3)) -> int:
    """`(x - mean) / (std + 1e-9)`."""
    return 5 * size(x) + 4 * lines(x.shape, axes)


counts({
    # The same by groups of channels, and by single ones
    "GroupNormalization": lambda x, *, num_groups: 7 * size(x) + 5 * _groups(x, num_groups),
    "InstanceNormalization": lambda x: 7 * size(x) + 5 * _groups(x, x.shape[1]),
    # `x / √(mean(x²) + epsilon) · scale`
    "RMSNormalization": lambda x, *, axis=-1: 4 * size(x) + 4 * _rows(x, axis),
    # By the statistics of the batch
    "ai.gradtool::BatchNormalizationTraining": lambda x, *, out: _by_batch(x, out),
    # By the statistics that the forward pass kept
    "ai.gradtool::BatchNormalizationGrad": lambda x, *, out: _by_plane(x, x.shape[1], out),
    # `Σ dy · (x - mean) · rstd`
    "ai.gradtool::BatchNormalizationGradScale": lambda x: 4 * size(x),
    # `x / (bias + alpha / size · Σ x²)^beta`, the sum over `size` channels
    "LRN": lambda *, out, size: made(out) * (size + 5),
    # `dy · b^-β - 2αβ/size · x · Σ dy · x · b^(-β - 1)`, with the base b computed again
    "ai.gradtool::LRNGrad": lambda *, out, size: made(out) * (2 * size + 11),
})  # fmt: skip
