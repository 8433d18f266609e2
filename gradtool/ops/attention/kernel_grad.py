"""Contribution of a block of attention to the gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradtool.operators.attention import Block, Shape
from gradtool.ops.attention.kernel_scaled import part, take
from gradtool.ops.shared.types import Array


def zeros(array: Array | None) -> Array | None:
    if array is not None:
        array[...] = 0
    return array


def query_gradient(
    xp: Any, n: Shape, block: Block, dq: Array | None, ds: Array, keys: Array, buffer: Array | None
) -> None:
    """`dq = ds k · scale` for the rows of a block."""
    if dq is None:
        return
    target = dq[block.queries]
    result = target if buffer is None else take(buffer, target.shape)
    xp.matmul(ds, keys, out=result)
    xp.multiply(result, n.scale, out=result)
    if result is not target:
        xp.copyto(target, result, casting="unsafe")


def accumulate(
    xp: Any,
    block: Block,
    out: Array | None,
    a: Array,
    b: Array,
    buffers: Mapping[str, Array],
    name: str,
) -> None:
    """Add `a @ b`, of the first keys, to the gradient of the keys or values of a block."""
    if out is None:
        return
    target = out[block.keys]
    total = take(buffers[name], target.shape) if name in buffers else target
    some = total[:, :, : a.shape[2]]
    if block.first:
        xp.matmul(a, b, out=some)
        total[:, :, a.shape[2] :] = 0
    else:
        product = take(buffers["sum"], some.shape)
        xp.matmul(a, b, out=product)
        xp.add(some, product, out=some)
    if block.last and total is not target:
        xp.copyto(target, total, casting="unsafe")


def add_to_mask(xp: Any, dmask: Array, block: Block, ds: Array, scratch: Array) -> None:
    """Add the gradient of the scores, summed over the broadcast axes of the mask."""
    target = part(dmask, block)[..., : ds.shape[3]]
    ds = ds[..., : target.shape[3]]
    axes = tuple(a for a in range(3) if target.shape[a] == 1 and ds.shape[a] != 1)
    if axes:
        total = take(scratch.reshape(-1), target.shape)
        xp.sum(ds, axis=axes, keepdims=True, out=total)
        ds = total
    xp.add(target, ds, out=target)
