"""Matrix products: 2 · M · N · K."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradtool.ops.costs import cost, counts
from gradtool.ops.shared.element_counts import Results, Shaped, made, size

if TYPE_CHECKING:
    from gradtool.operators.equations import Indices


@cost("Gemm")
def gemm(
    a: Shaped, _: Shaped, c: Shaped | None = None, *,
    out: Results, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, **__: Any,
) -> int:  # fmt: skip
    """`y = alpha · A B + beta · C`."""
    product = 2 * made(out) * a.shape[0 if transA else 1]
    scaled = made(out) if alpha != 1 else 0
    if c is None or beta == 0:
        return product + scaled
    return product + scaled + made(out) + (size(c) if beta != 1 else 0)


@cost("ai.gradtool::SummedMatMul")
def summed_matmul(a: Shaped, b: Shaped) -> int:
    """`y = Σ a @ b` over leading axes."""
    lead = math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    return 2 * lead * a.shape[-2] * a.shape[-1] * b.shape[-1]


@cost("Einsum")
def einsum(*inputs: Shaped, equation: str) -> int:
    """Operands are summed over the indices that they alone have, then multiplied from the left.

    Each product is summed over the indices that nothing behind it has.
    """
    from gradtool.operators.equations import parse

    terms, result = parse(equation, [len(a.shape) for a in inputs])
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, inputs, strict=True):
        for index, n in zip(term, operand.shape, strict=True):
            sizes[index] = max(n, sizes.get(index, n)) if n else 0
    pending = [_distinct(term, a, sizes) for term, a in zip(terms, inputs, strict=True)]
    count = 0
    for turn, term in enumerate(pending):
        needed = {*result, *(i for t in (*pending[:turn], *pending[turn + 1 :]) for i in t)}
        if any(i not in needed for i in term):
            count += _points(term, sizes)
            pending[turn] = tuple(i for i in term if i in needed)
    left, *rest = pending
    for turn, right in enumerate(rest):
        needed = {*result, *(i for t in rest[turn + 1 :] for i in t)}
        both = tuple(dict.fromkeys((*left, *right)))
        left = tuple(i for i in both if i in needed)
        count += _points(both, sizes) * (2 if len(left) < len(both) else 1)
    return count


def _distinct(term: Indices, operand: Shaped, sizes: dict[str, int]) -> Indices:
    """Indices of an operand, without its broadcast axes."""
    own = dict(zip(term, operand.shape, strict=True))
    return tuple(i for i in own if own[i] == sizes[i])


def _points(indices: Indices, sizes: dict[str, int]) -> int:
    return math.prod(sizes[i] for i in indices)


# `y[..., M, N] = a[..., M, K] @ b[..., K, N]`: K multiply-adds per result.
counts({"MatMul": lambda a, *, out: 2 * made(out) * a.shape[-1]})
