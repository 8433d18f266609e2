"""Binary cross-entropy of probabilities and its gradient."""

from __future__ import annotations

from typing import Any

from gradtool.operators.losses import LEAST_VARIANCE, LOWEST_LOG
from gradtool.ops.shared.blocks import pointwise
from gradtool.ops.shared.types import Array


@pointwise("ai.gradtool::BinaryCrossEntropy", temporaries=3)
def binary_cross_entropy(
    xp: Any, p: Array, t: Array, out: Array, here: Array, there: Array, rest: Array
) -> None:
    xp.maximum(xp.log(p, out=here), LOWEST_LOG, out=here)
    xp.subtract(1, p, out=rest)
    xp.maximum(xp.log(rest, out=there), LOWEST_LOG, out=there)
    xp.subtract(1, t, out=rest)
    xp.multiply(rest, there, out=there)
    xp.multiply(t, here, out=here)
    xp.negative(xp.add(here, there, out=here), out=out)


@pointwise("ai.gradtool::BinaryCrossEntropyGrad", temporaries=2, may_inplace=(2,))
def binary_cross_entropy_grad(
    xp: Any, p: Array, t: Array, dy: Array, out: Array, variance: Array, error: Array
) -> None:
    xp.subtract(1, p, out=variance)
    xp.maximum(xp.multiply(p, variance, out=variance), LEAST_VARIANCE, out=variance)
    xp.divide(xp.subtract(p, t, out=error), variance, out=error)
    xp.multiply(dy, error, out=out)
