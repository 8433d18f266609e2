"""Composites of the elementwise family."""

from __future__ import annotations

from gradtool.functions import composite


@composite("AbsGrad")
def abs_grad(op, x, dy):
    """`dx = dy · sign(x)`, which is 0 at 0."""
    return dy * op.Sign(x)
