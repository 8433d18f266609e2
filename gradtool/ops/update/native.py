"""Updates of parameters, each one pass over a parameter, its gradient and its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.native import optimizers as library
from gradtool.ops.native import Bound, are_floats, native
from gradtool.ops.shared.types import Array, Arrays


def _fits(x: Spec, *rest: Any, out: Sequence[Spec | None]) -> bool:
    return all(o is not None for o in out) and are_floats(x, *rest, *out) and 0 not in x.shape


def _given(**numbers: Array | None) -> dict[str, Array]:
    """The present numbers."""
    return {name: array for name, array in numbers.items() if array is not None}


@native("ai.gradtool::SgdUpdate", fits=_fits)
def sgd(
    x: Array, g: Array, rate: Array, decay: Array | None, shrinkage: Array | None, *,
    out: Arrays, work: Arrays,
) -> Bound:  # fmt: skip
    """`shrinkage · x - rate · (g + decay · x)`."""
    del work
    numbers = _given(rate=rate, l2=decay, before=shrinkage)
    return library.momentum(x, g, None, out[0], None, **numbers)


@native("ai.gradtool::MomentumUpdate", fits=_fits)
def momentum(
    x: Array, g: Array, rate: Array, decay: Array | None, mu: Array, share: Array | None, b: Array,
    *, out: Arrays, work: Arrays, nesterov: int,
) -> Bound:  # fmt: skip
    """`b = μ b + share · g`, `x - rate · b`, or `x - rate · (g + μ b)` for Nesterov."""
    del work
    numbers: Any = _given(rate=rate, l2=decay, momentum=mu, dampened=share)
    return library.momentum(x, g, b, *out, nesterov=bool(nesterov), **numbers)


@native("ai.gradtool::AdamUpdate", fits=_fits)
def adam(
    x: Array, g: Array, rate: Array, root: Array, first: Array, second: Array, decay: Array | None,
    shrinkage: Array | None, m: Array, v: Array, *, out: Arrays, work: Arrays, epsilon: float,
) -> Bound:  # fmt: skip
    """`shrinkage · x - rate · m / (√v / root + ε)`, m and v the means of `g + decay · x`."""
    del work
    numbers: Any = _given(
        rate=rate, root=root, share1=first, share2=second, l2=decay, before=shrinkage
    )
    return library.adam(x, g, m, v, *out, epsilon=epsilon, **numbers)


@native("ai.gradtool::AdagradUpdate", fits=_fits)
def adagrad(
    x: Array, g: Array, rate: Array, decay: Array | None, s: Array, *, out: Arrays, work: Arrays,
    epsilon: float,
) -> Bound:  # fmt: skip
    """`s = s + g²`, `x - rate · g / (√s + ε)`."""
    del work
    numbers: Any = _given(rate=rate, l2=decay)
    return library.adagrad(x, g, s, *out, epsilon=epsilon, **numbers)
