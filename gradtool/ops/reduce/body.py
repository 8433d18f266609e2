"""Composites of the reduce family; `y` and `dy` have the reduced axes, of size one."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Tensor


@composite("ReduceExtremeGrad")
def reduce_extreme_grad(
    op: Builder, x: Tensor, y: Tensor, dy: Tensor, *, axes: Sequence[int]
) -> Tensor:
    """`dx = dy / k` at the k elements that equal the largest (or smallest), else 0."""
    hits = op.cast(op.Equal(x, y), x.dtype)
    return hits * (dy / op.sum(hits, axes, keepdims=True))


@composite("ReduceLogSumExpGrad")
def reduce_log_sum_exp_grad(op: Builder, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy · exp(x - y)`."""
    return dy * op.Exp(x - y)


@composite("ReduceProdGrad")
def reduce_prod_grad(op: Builder, x: Tensor, dy: Tensor, *, axes: Sequence[int]) -> Tensor:
    """`dxᵢ = dy · Π xⱼ` over the others, as products before and after i.

    Nothing is to be scanned where there are no elements.
    """
    if 0 in list(x.shape):
        return dy * x
    rest = [a for a in range(len(x.shape)) if a not in axes]
    order = [*axes, *rest]
    moved = op.transpose(x, order)
    column = op.reshape(moved, [-1, *(x.shape[a] for a in rest)])
    one = op.Expand(op.constant(1.0, x.dtype), op.sizes([x.shape[a] for a in rest]))
    before = _exclusive_products(op, column, one, reverse=0)
    after = _exclusive_products(op, column, one, reverse=1)
    others = op.reshape(before * after, list(moved.shape))
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return dy * op.transpose(others, inverse)


def _exclusive_products(op: Builder, column: Tensor, start: Tensor, *, reverse: int) -> Tensor:
    """For each row of `column`, the product of all rows before it (after it if `reverse`)."""
    product = op.formal("product", start.shape, column.dtype)
    row = op.formal("row", column.shape[1:], column.dtype)
    with op.body([product, row]) as body:
        body.outputs.extend([product * row, op.Identity(product)])
    directions = {"scan_input_directions": [reverse], "scan_output_directions": [reverse]}
    _, products = op.Scan(start, column, outputs=2, body=body, num_scan_inputs=1, **directions)
    return products
