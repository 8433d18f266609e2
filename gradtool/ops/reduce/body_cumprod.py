"""The gradient of running products, without a division."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.constants import integers
from gradtool.graph.typed import Tensor


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
