"""Composites of the matrix family."""

from __future__ import annotations

import numpy as np

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Tensor, ints


@composite("DetGrad")
def det_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy · cofactor(x)`: determinants without a row and a column."""
    n, rank = ints(x.shape)[-1], len(x.shape)
    if n == 1:
        return op.Reshape(dy, op.shape(x))
    others = np.array([[j for j in range(n) if j != i] for i in range(n)])
    rows = op.Gather(x, others, axis=rank - 2)  # …, row, kept rows, n
    minors = op.Gather(rows, others, axis=rank)  # …, row, kept rows, column, kept columns
    minors = op.swap_axes(minors, rank - 1, rank)
    signs = (-1.0) ** np.add.outer(np.arange(n), np.arange(n))
    cofactor = op.Det(minors) * op.constant(signs.astype(x.dtype.numpy()))
    return cofactor * op.Unsqueeze(dy, [-1, -2])
