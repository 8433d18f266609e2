"""Types of sums and roots, as the bodies of several families need them."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Tensor


def widened(x: Tensor) -> ir.DataType:
    """The type of sums: float32 at least."""
    return x.dtype if x.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT


def inverse_root(op: Builder, x: Tensor, epsilon: float) -> Tensor:
    """`1 / sqrt(x + epsilon)`."""
    return op.Reciprocal(op.Sqrt(x + epsilon))
