"""Arithmetic, comparison and logic: one operation per element and function."""

from gradtool.ops.costs import counts, each, free
from gradtool.ops.formulas import OPERATIONS
from gradtool.ops.shared.element_counts import made

each({name: operation.counts for name, operation in OPERATIONS.items()})
each(dict.fromkeys(("Div", "IsInf", "Mod", "Pow", "Reciprocal"), 1))
free(("BitShift", "Cast", "CastLike", "Identity", "Where"))

counts({
    # `x₁ + … + xₙ`
    "Max": lambda *inputs, out: (len(inputs) - 1) * made(out),
    "Min": lambda *inputs, out: (len(inputs) - 1) * made(out),
    "Sum": lambda *inputs, out: (len(inputs) - 1) * made(out),
    # `(x₁ + … + xₙ) / n`
    "Mean": lambda *inputs, out: len(inputs) * made(out),
    # `min(max(x, low), high)`
    "Clip": lambda _, *bounds, out: sum(bound is not None for bound in bounds) * made(out),
})  # fmt: skip
