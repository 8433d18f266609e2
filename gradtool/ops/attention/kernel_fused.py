"""Attention that leaves one number per row to its gradient, a block of rows at a time.

Operands are those of `_attention`; masks [B, H, S, T] have sizes of one where they are broadcast.

Source: Dao 2023, FlashAttention-2 (arXiv:2307.08691), algorithms 1 and 2.  Unlike there, a block
holds the scores of its rows with all keys: one pass finds the statistic of a row, and backward
takes `Σ p dp` from the block, so that of forward it reads the operands and `lse` only.  It takes
`Σ p` from there, too: `lse` has the digits of the scores, of which masks of -10⁹ leave none to the
logarithm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.attention import Block, Shape, shape_of
from gradtool.ops.attention.kernel_grad import (
    accumulate,
    add_to_mask,
    query_gradient,
    zeros,
)
from gradtool.ops.attention.kernel_scaled import (
    keys_of,
    load,
    mask_of,
    part,
    queries_of,
    scaled,
    take,
)
from gradtool.ops.attention.kernel_scores import (
    backward_room,
    forward_room,
    hide_by,
    hide_diagonals,
    reach,
    seen_by,
    sizes_of,
)
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays


def _flags(n: Shape, masks: Sequence[Array | Spec]) -> dict[str, Spec]:
    """Workspace for boolean masks."""
    shapes = [mask.shape for mask in masks if mask.dtype == np.bool_]
    spans = sizes_of(n, None, whole=False)
    most = max((seen_by(n, shape, s, t) for shape in shapes for s, t in spans), default=0)
    return {"flags": Spec((most,), np.dtype(bool))} if shapes else {}


def _forward_room(
    n: Shape, q: Array | Spec, masks: Sequence[Array | Spec], out: Sequence[Array | Spec | None]
) -> dict[str, Spec]:
    narrow = n.dtype != q.dtype and out[0] is not None
    return forward_room(n, None, None, narrow=narrow) | _flags(n, masks)


def _forward_work(
    q: Spec, k: Spec, v: Spec, *masks: Spec, out: Sequence[Spec | None], **attributes: Any
) -> list[Spec]:
    return list(_forward_room(shape_of(q, k, v, **attributes), q, masks, out).values())


@kernel("ai.gradtool::FusedAttention", strided=True, work=_forward_work)
def fused_attention(
    xp: Any,
    q: Array,
    k: Array,
    v: Array,
    *masks: Array,
    out: Arrays,
    work: Arrays,
    fill: float = -np.inf,
    safe: int = 0,
    **attributes: Any,
) -> None:
    """`Y = p v` and `lse = log Σ exp s`, with `s = masked(q kᵀ · scale)` and `p = exp(s - lse)`.

    A row of only -inf is NaN, as its softmax is; with `safe` it is zero and its `lse` infinite.
    """
    n = shape_of(q, k, v, **attributes)
    room = _forward_room(n, q, masks, out)
    buffers = dict(zip(room, work, strict=True))
    q, k, v = queries_of(q, n), keys_of(k, n), keys_of(v, n)
    seen = [mask_of(mask, n) for mask in masks]
    y, lse = (queries_of(a, n) for a in (*out, None)[:2])

    for block in n.blocks():
        if block.first:
            keys = load(xp, block, None, k, buffers.get("k"), n)
            values = load(xp, block, None, v, buffers.get("v"), n)
        rows = scaled(xp, q, block, buffers["q"], n)
        e = _scores(xp, n, block, rows, keys, seen, buffers, fill)
        top, total = (take(buffers[name], (*rows.shape[:3], 1)) for name in ("top", "total"))
        xp.max(e, axis=3, keepdims=True, out=top)
        if safe:
            xp.maximum(top, float(np.finfo(top.dtype).min), out=top)
        xp.subtract(e, top, out=e)
        xp.exp(e, out=e)
        xp.sum(e, axis=3, keepdims=True, out=total)
        if safe:
            xp.copyto(top, np.inf, where=total == 0)
            xp.copyto(total, 1, where=total == 0)
        if y is not None:
            target = y[block.queries]
            result = take(buffers["y"], target.shape) if "y" in buffers else target
            xp.matmul(e, values[:, :, : e.shape[3]], out=result)
            xp.divide(result, total, out=result)
            if result is not target:
                xp.copyto(target, result, casting="unsafe")
        if lse is not None:
            xp.log(total, out=total)
            xp.add(top, total, out=lse[block.queries])


def _scores(
    xp: Any,
    n: Shape,
    block: Block,
    rows: Array,
    keys: Array,
    masks: Sequence[Array],
    buffers: Mapping[str, Array],
    fill: float,
) -> Array:
    """The scores of a block: floats are added, false flags put `fill`, in the order of masks.

    Causality hides scores last.
    """
    columns = reach(n, block.rows, None)
    s = take(buffers["scores"], (*rows.shape[:3], columns))
    xp.matmul(rows, keys[:, :, :columns].swapaxes(2, 3), out=s)
    for mask in masks:
        some = part(mask, block)[..., :columns]
        if mask.dtype == np.bool_:
            hide_by(xp, some, s, buffers["flags"], fill)
        else:
            xp.add(s, some, out=s)
    if n.causal:
        hide_diagonals(xp, n, s, block.rows.start, buffers["line"], -np.inf)
    return s


def _backward_room(
    n: Shape,
    q: Array | Spec,
    masks: Sequence[Array | Spec],
    of: Sequence[int],
    out: Sequence[Array | Spec | None],
) -> dict[str, Spec]:
    """The buffers of the gradients wanted in `out`."""
    room = backward_room(n, None, None, q, None, 0, out[:3]) | _flags(n, masks)
    if n.dtype == q.dtype:
        del room["dy"]
    for index, d in zip(of, out[3:], strict=False):
        if d is not None and d.dtype != n.dtype:
            room[f"dmask{index}"] = Spec(d.shape, n.dtype)
    return room


def _backward_work(
    q: Spec, k: Spec, v: Spec, lse: Spec, dy: Spec, dlse: Spec | None, *masks: Spec,
    out: Sequence[Spec | None], of: Sequence[int] = (), **attributes: Any,
) -> list[Spec]:  # fmt: skip
    return list(_backward_room(shape_of(q, k, v, **attributes), q, masks, of, out).values())


@kernel("ai.gradtool::FusedAttentionGrad", strided=True, work=_backward_work)
def fused_attention_grad(
    xp: Any, q: Array, k: Array, v: Array, lse: Array, dy: Array, dlse: Array | None,
    *masks: Array, out: Arrays, work: Arrays, fill: float = -np.inf, safe: int = 0,
    of: Sequence[int] = (), **attributes: Any,
) -> None:  # fmt: skip
    """Gradients by q, k, v and the masks `of`, from `p = exp(s - lse) / Σ exp(s - lse)`.

    dv = pᵀ dy    dp = dy vᵀ    ds = p · (dp - Σ p dp + dlse)    dq = ds k · scale
    """
    n = shape_of(q, k, v, **attributes)
    room = _backward_room(n, q, masks, of, out)
    buffers = dict(zip(room, work, strict=True))
    dq, dk, dv, *dmasks = out
    dq, dk, dv, dy = queries_of(dq, n), keys_of(dk, n), keys_of(dv, n), queries_of(dy, n)
    lse, dlse = queries_of(lse, n), queries_of(dlse, n)
    q, k, v = queries_of(q, n), keys_of(k, n), keys_of(v, n)
    seen: Arrays = [mask_of(mask, n) for mask in masks]
    wide = {i: zeros(buffers.get(f"dmask{i}", d)) for i, d in zip(of, dmasks, strict=True)}
    added = {i: mask_of(d, n) for i, d in wide.items()}
    hidden = fill != -np.inf or not safe

    for block in n.blocks():
        if block.first:
            keys = load(xp, block, None, k, buffers.get("k"), n)
            values = load(xp, block, None, v, buffers.get("v"), n)
        rows = scaled(xp, q, block, buffers["q"], n)
        p = _scores(xp, n, block, rows, keys, seen, buffers, fill)
        columns = p.shape[3]
        xp.subtract(p, lse[block.queries], out=p)
        xp.exp(p, out=p)
        row = take(buffers["row"], (*p.shape[:3], 1))
        xp.sum(p, axis=3, keepdims=True, out=row)
        xp.copyto(row, 1, where=row == 0)
        xp.divide(p, row, out=p)

        dye = dy[block.queries]
        if "dy" in buffers:
            dye = take(buffers["dy"], dye.shape)
            xp.copyto(dye, dy[block.queries])
        accumulate(xp, block, dv, p.swapaxes(2, 3), dye, buffers, "dv")
        ds = take(buffers["dscores"], p.shape)
        xp.matmul(dye, values[:, :, :columns].swapaxes(2, 3), out=ds)
        xp.matmul(p[..., None, :], ds[..., :, None], out=row[..., None])
        if dlse is not None:
            xp.subtract(row, dlse[block.queries], out=row)
        xp.subtract(ds, row, out=ds)
        xp.multiply(ds, p, out=ds)
        for i, mask in reversed(list(enumerate(seen))):
            if mask.dtype == np.bool_ and hidden:
                hide_by(xp, part(mask, block)[..., :columns], ds, buffers["flags"], 0)
            elif added.get(i) is not None:
                add_to_mask(xp, added[i], block, ds, p)
        accumulate(xp, block, dk, ds.swapaxes(2, 3), rows, buffers, "dk")
        query_gradient(xp, n, block, dq, ds, keys[:, :, :columns], buffers.get("dq"))
    for i, d in zip(of, dmasks, strict=True):
        if d is not None and wide[i] is not d:
            xp.copyto(d, wide[i], casting="unsafe")
