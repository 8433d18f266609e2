"""Composites of the linear family."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor


def _summed_shape(a: Tensor, b: Tensor, *, axes: Sequence[int]) -> Outputs:
    rank = max(len(a.shape), len(b.shape))
    padded = [(*[1] * (rank - len(v.shape)), *v.shape[:-2]) for v in (a, b)]
    lead = [n if m == 1 else m for m, n in zip(*padded, strict=True)]
    kept = [1 if i in axes else n for i, n in enumerate(lead)]
    return [([*kept, a.shape[-2], b.shape[-1]], a.dtype)]


@composite("SummedMatMul", shapes=_summed_shape)
def summed_matmul(op: Builder, a: Tensor, b: Tensor, *, axes: Sequence[int]) -> Tensor:
    """`y = Σ a @ b` over the leading `axes`, kept as axes of size one."""
    return op.sum(op.MatMul(a, b), axes, keepdims=True)
