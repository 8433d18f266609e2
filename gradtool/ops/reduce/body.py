"""Composites of the reduce family; `y` and `dy` have the reduced axes, of size one."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.constants import integers
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


@composite("CumProdGrad", like=2)
def cum_prod_grad(
    op: Builder, x: Tensor, axis: Tensor, dy: Tensor, *, exclusive: int = 0, reverse: int = 0
) -> Tensor:
    """`dx[i] = (Π x before i) · s[i]` with `s[i] = dy[i] + x[i + 1] s[i + 1]`.

    If exclusive, `s[i] = dy[i + 1] + x[i + 1] s[i + 1]`.
    """
    known = integers(axis)
    assert known is not None  # noqa: S101 - the rule saw to it
    place = known[0] % len(x.shape)
    line = [d for a, d in enumerate(x.shape) if a != place]
    lead = op.constant([1])
    sizes = op.Concat(
        *([op.size_of(x, 0, place)] if place else []), lead,
        *([op.size_of(x, place + 1, len(x.shape))] if place + 1 < len(x.shape) else []), axis=0,
    )  # fmt: skip
    zero = op.Squeeze(op.Expand(op.CastLike(op.constant(0.0, x.dtype), x), sizes), [place])
    carry, factor, slope = (op.formal(n, line, x.dtype) for n in ("s", "x", "dy"))
    with op.body([carry, factor, slope]) as body:
        if exclusive:  # what goes out is what the elements behind brought
            after = op.Add(slope, op.Mul(factor, carry))
            body.outputs.extend([after, op.Identity(carry)])
        else:
            here = op.Add(slope, carry)
            body.outputs.extend([op.Mul(factor, here), op.Identity(here)])
    _, s = op.Scan(
        zero, x, dy, outputs=2, body=body, num_scan_inputs=2,
        scan_input_axes=[place, place], scan_output_axes=[place],
        scan_input_directions=[0 if reverse else 1] * 2,
        scan_output_directions=[0 if reverse else 1],
    )  # fmt: skip
    before = op.CumProd(x, axis, exclusive=1, reverse=reverse or None)
    return before * s
