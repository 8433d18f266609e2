"""Arithmetic, comparison and logic: one operation per element and function."""

from __future__ import annotations

from typing import Any

from gradtool.ops.costs import cost, each, free
from gradtool.ops.formulas import OPERATIONS
from gradtool.ops.shared.element_counts import Results, Shaped, made

each({name: operation.counts for name, operation in OPERATIONS.items()})
each(dict.fromkeys(("Div", "IsInf", "Mod", "Pow", "Reciprocal"), 1))
free(("BitShift", "Cast", "CastLike", "Identity", "Where"))


@cost("Max", "Min", "Sum")
def folded(*inputs: Shaped, out: Results) -> int:
    """`x₁ + … + xₙ`."""
    return (len(inputs) - 1) * made(out)


@cost("Mean")
def mean(*inputs: Shaped, out: Results) -> int:
    """`(x₁ + … + xₙ) / n`."""
    return len(inputs) * made(out)


@cost("Clip")
def clip(_: Shaped, *bounds: Any, out: Results) -> int:
    """`min(max(x, low), high)`."""
    return sum(bound is not None for bound in bounds) * made(out)
