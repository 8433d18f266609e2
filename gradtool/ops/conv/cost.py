"""Convolutions: a multiply-add for each result, channel of its group and tap."""

from __future__ import annotations

import math

from gradtool.ops.costs import cost, counts
from gradtool.ops.shared.element_counts import Results, Shaped, made, result, size


@cost("Conv")
def conv(_: Shaped, w: Shaped, bias: Shaped | None = None, *, out: Results) -> int:
    """`y[N, M, *out] = Σ x[N, C, *in] · w[M, C/G, *kernel] + b[M]`."""
    return (2 * math.prod(w.shape[1:]) + (bias is not None)) * made(out)


@cost("ConvTranspose")
def conv_transpose(x: Shaped, w: Shaped, bias: Shaped | None = None, *, out: Results) -> int:
    """Each element of x is multiplied by `w[c, M/G, *kernel]` and added, then the bias is."""
    return 2 * size(x) * math.prod(w.shape[1:]) + (made(out) if bias is not None else 0)


@cost("ai.gradtool::ConvGradWeight")
def conv_grad_weight(_: Shaped, dy: Shaped, *, out: Results) -> int:
    """`dw[M, C/G, *kernel] = Σ x · dy`: as many multiplications as the forward pass."""
    return 2 * size(dy) * math.prod(result(out).shape[1:])


@cost("DeformConv")
def deform_conv(
    x: Shaped, w: Shaped, offset: Shaped, bias: Shaped | None = None, mask: Shaped | None = None, *,
    out: Results,
) -> int:  # fmt: skip
    """Columns interpolated between 2ʳ elements, times the mask, then a product of matrices.

    For each tap of each window the offset is added along r axes, the distance to the element below
    and its complement taken, and 2ʳ weights are made by r - 1 products.
    """
    rank = len(x.shape) - 2
    corners: int = 2**rank
    taps = size(offset) // rank
    columns = x.shape[0] * x.shape[1] * math.prod(w.shape[2:]) * math.prod(result(out).shape[2:])
    weights = taps * (4 * rank + corners * (rank - 1))
    sampled = columns * (2 * corners + (mask is not None))
    return weights + sampled + conv(x, w, bias, out=out)


# The transposed convolution of dy by w.
counts({"ai.gradtool::ConvGradInput": lambda dy, w: 2 * size(dy) * math.prod(w.shape[1:])})
