"""Kernels of the elementwise family's gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.blocks import pointwise
from gradtool.ops.shared.select import drop, keep
from gradtool.ops.shared.types import Array, Arrays

POWERS = {
    -1.0: lambda xp, x, y: xp.divide(x.dtype.type(1), x, out=y),
    0.5: lambda xp, x, y: xp.add(xp.sqrt(x, out=y), 0, out=y),  # (-0.0)^½ is 0.0, √-0.0 is not
    1.0: lambda xp, x, y: xp.copyto(y, x),
    2.0: lambda xp, x, y: xp.multiply(x, x, out=y),
}


def raise_to(xp: Any, x: Array, exponent: Array, y: Array) -> None:
    """`y = x ** exponent`, with one multiplication or root for the usual scalar exponents."""
    scalar = exponent.size == 1 and x.size > 1 and isinstance(exponent, np.ndarray)
    usual = POWERS.get(float(exponent.flat[0])) if scalar and x.dtype.kind not in "iub" else None
    if usual is not None:
        usual(xp, x, y)
    else:
        xp.power(x, exponent, out=y, casting="unsafe")


def _pow_work(x: Spec, exponent: Spec) -> list[Spec]:
    return [Spec(exponent.shape, np.dtype(x.dtype)), Spec(exponent.shape, np.dtype(bool))]


@kernel("ai.gradtool::PowGrad", may_inplace=(0,), strided=True, work=_pow_work)
def pow_grad(xp: Any, x: Array, exponent: Array, dy: Array, *, out: Arrays, work: Arrays) -> None:
    """`dx = dy · e · x^(e - 1)`, and 0 where e is 0; `out` may be x."""
    e, zero = work
    xp.copyto(e, exponent, casting="unsafe")
    xp.equal(e, 0, out=zero)
    xp.copyto(e, 1, where=zero)
    xp.subtract(e, 1, out=e)
    raise_to(xp, x, e, out[0])
    xp.copyto(e, exponent, casting="unsafe")
    xp.multiply(out[0], e, out=out[0])
    xp.multiply(out[0], dy, out=out[0])


@pointwise("ai.gradtool::PowExponentGrad", temporaries=1, masks=2, may_inplace=(0, 2, 3))
def pow_exponent_grad(
    xp: Any, x: Array, exponent: Array, y: Array, dy: Array, out: Array, t: Array, vanishes: Array,
    other: Array,
) -> None:  # fmt: skip
    """The gradient by the exponent: dy · y · ln x, and 0 where y vanishes."""
    xp.multiply(xp.log(x, out=t), y, out=t)
    xp.equal(x, 0, out=vanishes)
    xp.logical_and(vanishes, xp.greater_equal(exponent, 0, out=other), out=vanishes)
    xp.copyto(t, 0, where=vanishes)
    xp.multiply(t, dy, out=out)


def _extreme(name: str, comparison: str) -> None:
    @pointwise(f"ai.gradtool::{name}", temporaries=2, masks=2, may_inplace=(0, 2))
    def run(
        xp: Any, x: Array, other: Array, dy: Array, out: Array, t: Array, s: Array, wins: Array,
        ties: Array,
    ) -> None:  # fmt: skip
        """The gradient by the first operand: all of it where that wins, half where both are."""
        getattr(xp, comparison)(x, other, out=wins)
        xp.logical_or(wins, xp.not_equal(x, x, out=ties), out=wins)
        keep(xp, xp.equal(x, other, out=ties), dy, s, t)
        keep(xp, wins, dy, out, t)
        xp.add(out, xp.multiply(s, 0.5, out=s), out=out)


_extreme("MaxGrad", "greater")
_extreme("MinGrad", "less")


def _clip_masks(x: Spec, low: Spec | None, high: Spec | None, dy: Spec) -> int:
    return 1 if high is None else 2


@pointwise("ai.gradtool::ClipGrad", temporaries=1, masks=_clip_masks, may_inplace=(0, 3))
def clip_grad(
    xp: Any, x: Array, low: Array, high: Array, dy: Array, out: Array, t: Array, outside: Array,
    *above: Array,
) -> None:  # fmt: skip
    """NaN is inside: its gradient passes, so that it stays visible."""
    outside.fill(False)
    if low is not None:
        xp.less(x, low, out=outside)
    if high is not None:
        xp.logical_or(outside, xp.greater(x, high, out=above[0]), out=outside)
    drop(xp, outside, dy, out, t)
