"""Types of sums and roots, as the bodies of several families need them."""

from __future__ import annotations

import onnx_ir as ir


def widened(x):
    """The type of sums: float32 at least."""
    return x.dtype if x.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT


def inverse_root(op, x, epsilon):
    """`1 / sqrt(x + epsilon)`."""
    return op.Reciprocal(op.Sqrt(x + epsilon))
