"""Binary cross-entropy of probabilities and its gradient."""

from __future__ import annotations

from gradtool.exec.kernels._blocks import pointwise
from gradtool.functions.loss import LEAST_VARIANCE, LOWEST_LOG


@pointwise("ai.gradtool::BinaryCrossEntropy", temporaries=3)
def binary_cross_entropy(xp, p, t, out, here, there, rest):
    xp.maximum(xp.log(p, out=here), LOWEST_LOG, out=here)
    xp.subtract(1, p, out=rest)
    xp.maximum(xp.log(rest, out=there), LOWEST_LOG, out=there)
    xp.subtract(1, t, out=rest)
    xp.multiply(rest, there, out=there)
    xp.multiply(t, here, out=here)
    xp.negative(xp.add(here, there, out=here), out=out)


@pointwise("ai.gradtool::BinaryCrossEntropyGrad", temporaries=2, may_inplace=(2,))
def binary_cross_entropy_grad(xp, p, t, dy, out, variance, error):
    xp.subtract(1, p, out=variance)
    xp.maximum(xp.multiply(p, variance, out=variance), LEAST_VARIANCE, out=variance)
    xp.divide(xp.subtract(p, t, out=error), variance, out=error)
    xp.multiply(dy, error, out=out)
