"""Attention, rotary embedding, and their gradients."""

from __future__ import annotations

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels import _rotary
from gradtool.exec.kernels._attention import (
    exponentials, forward_room, hide, keys_of, load, mask_of, part, queries_of, reach, scaled, score,
    shape_of, take,
)  # fmt: skip
from gradtool.program import Spec

__all__ = ["_rotary"]


def _forward_room(q, k, v, mask, past_k, lens, narrow, attributes):
    n = shape_of(q, k, v, past_k, **attributes)
    return n, forward_room(n, mask, lens, narrow)


def _forward_work(q, k, v, mask=None, past_k=None, past_v=None, lens=None, *, out, **attributes):
    n = shape_of(q, k, v, past_k, **attributes)
    return list(forward_room(n, mask, lens, n.dtype != q.dtype).values())


@kernel("Attention", strided=True, host=(6,), work=_forward_work)
def attention(
    xp, q, k, v, mask=None, past_k=None, past_v=None, lens=None, *, out, work, **attributes
):
    """`Y = softmax(q kᵀ · scale + bias) v`, and the keys, values and scores that are asked for.

    A row that may not look at any key is zero.
    """
    n = shape_of(q, k, v, past_k, **attributes)
    mode = attributes.get("qk_matmul_output_mode", 0)
    y, present_k, present_v, shown = (*out, None, None, None)[:4]
    room = forward_room(n, mask, lens, n.dtype != q.dtype)
    buffers = dict(zip(room, work, strict=True))
    q, k, v, mask = queries_of(q, n), keys_of(k, n), keys_of(v, n), mask_of(mask, n)
    for present, past, new in ((present_k, past_k, k), (present_v, past_v, v)):
        if present is not None:
            xp.copyto(present[:, :, n.past :], new)
            if past is not None:
                xp.copyto(present[:, :, : n.past], past)
    y = None if y is None else queries_of(y, n)
    if shown is not None:
        shown = shown.reshape(n.batch, n.groups, n.heads, n.queries, n.keys)

    for block in n.blocks():
        if block.first:
            keys = load(xp, block, past_k, k, buffers.get("k"), n)
            values = load(xp, block, past_v, v, buffers.get("v"), n)
        rows = scaled(xp, q, block, buffers["q"], n)
        columns = reach(n, block, lens, whole=shown is not None)
        seen = None if shown is None else shown[block.queries]
        scores = score(xp, n, block, rows, keys, mask, lens, buffers, columns, seen, mode)
        top, total = (take(buffers[name], (*rows.shape[:3], 1)) for name in ("top", "total"))
        exponentials(xp, scores, top, total)
        if seen is not None and mode == 3:
            xp.divide(scores, total, out=scores)
            xp.copyto(seen, scores, casting="unsafe")
            xp.copyto(total, 1)
        if y is None:
            continue
        target = y[block.queries]
        result = take(buffers["y"], target.shape) if "y" in buffers else target
        xp.matmul(scores, values[:, :, :columns], out=result)
        xp.divide(result, total, out=result)
        if result is not target:
            xp.copyto(target, result, casting="unsafe")


def _backward_room(n, mask, lens, q, dscores, mode):
    b, g, rows, columns = n.block
    size = b * g * rows * columns
    room = forward_room(n, mask, lens, narrow=True)
    room["dy"] = room["y"]
    room["dscores"] = Spec((size,), n.dtype)
    room["row"] = Spec((b * g * rows,), n.dtype)
    if n.softcap > 0:
        room["bent"] = Spec((size,), n.dtype)
    if dscores is not None and mode == 3:
        room["given"] = Spec((size,), n.dtype)
    if n.gathered:
        room["dk"], room["dv"] = room["k"], room["v"]
    room["sum"] = Spec((b * g * columns * max(n.size, n.value_size),), n.dtype)
    if n.dtype != q.dtype:
        room["dq"] = room["q"]
    if mask is not None and mask.dtype not in (np.bool_, n.dtype):
        room["dmask"] = Spec(mask.shape, n.dtype)
    return room


def _backward_work(
    q, k, v, mask, past_k, past_v, lens, dy, dscores=None, *, out, qk_matmul_output_mode=0, **rest
):
    n = shape_of(q, k, v, past_k, **rest)
    return list(_backward_room(n, mask, lens, q, dscores, qk_matmul_output_mode).values())


@kernel("ai.gradtool::AttentionGrad", strided=True, host=(6,), work=_backward_work)
def attention_grad(
    xp, q, k, v, mask, past_k, past_v, lens, dy, dscores=None, *,
    out, work, qk_matmul_output_mode=0, **attributes,
):  # fmt: skip
    """Gradients by q, all keys, all values, and a float mask.

    With `e = exp(s - max)`, `p = e / Σe`, and rows of dy divided by `Σe`:

        dv = eᵀ dy    dp = dy vᵀ    ds = e · (dp - Σ(e · dp) / Σe)    dq = ds k · scale
    """
    n, mode = shape_of(q, k, v, past_k, **attributes), qk_matmul_output_mode
    room = _backward_room(n, mask, lens, q, dscores, mode)
    buffers = dict(zip(room, work, strict=True))
    dq, dk, dv, dmask = (*out, None)[:4]
    dq, dy, dmask_out = queries_of(dq, n), queries_of(dy, n), dmask
    if past_k is None:
        dk, dv = keys_of(dk, n), keys_of(dv, n)
    q, k, v, mask = queries_of(q, n), keys_of(k, n), keys_of(v, n), mask_of(mask, n)
    if dmask is not None:
        dmask = mask_of(buffers.get("dmask", dmask), n)
        dmask[...] = 0
    if dscores is not None:
        dscores = dscores.reshape(n.batch, n.groups, n.heads, n.queries, n.keys)

    for block in n.blocks():
        if block.first:
            keys = load(xp, block, past_k, k, buffers.get("k"), n)
            values = load(xp, block, past_v, v, buffers.get("v"), n)
        rows = scaled(xp, q, block, buffers["q"], n)
        columns = reach(n, block, lens, whole=dscores is not None)
        given = None if dscores is None else dscores[block.queries]
        e = score(xp, n, block, rows, keys, mask, lens, buffers, columns)
        top, total, row = (take(buffers[b], (*rows.shape[:3], 1)) for b in ("top", "total", "row"))
        exponentials(xp, e, top, total)

        weighted = take(buffers["dy"], (*rows.shape[:3], n.value_size))
        xp.divide(dy[block.queries], total, out=weighted)
        _accumulate(xp, n, block, dv, e.swapaxes(2, 3), weighted, buffers, "dv")
        ds = take(buffers["dscores"], e.shape)
        xp.matmul(weighted, values[:, :, :columns].swapaxes(2, 3), out=ds)
        if given is not None and mode == 3:
            extra = take(buffers["given"], e.shape)
            xp.divide(given, total, out=extra)
            xp.add(ds, extra, out=ds)
        xp.matmul(e[..., None, :], ds[..., :, None], out=row[..., None])
        xp.divide(row, total, out=row)
        xp.subtract(ds, row, out=ds)
        xp.multiply(ds, e, out=ds)
        if given is not None and mode == 2:
            xp.add(ds, given, out=ds)
            hide(xp, n, block, ds, mask, lens, buffers, 0)
        if dmask is not None:
            _add_to_mask(xp, dmask, block, ds, e)
        if given is not None and mode == 1:
            xp.add(ds, given, out=ds)
        if n.softcap > 0:
            bent = take(buffers["bent"], e.shape)
            xp.multiply(bent, bent, out=bent)
            xp.subtract(1, bent, out=bent)
            xp.multiply(ds, bent, out=ds)
        if given is not None and mode == 0:
            xp.add(ds, given, out=ds)
        _accumulate(xp, n, block, dk, ds.swapaxes(2, 3), rows, buffers, "dk")
        if dq is not None:
            target = dq[block.queries]
            result = take(buffers["dq"], target.shape) if "dq" in buffers else target
            xp.matmul(ds, keys[:, :, :columns], out=result)
            xp.multiply(result, n.scale, out=result)
            if result is not target:
                xp.copyto(target, result, casting="unsafe")
    if dmask_out is not None and "dmask" in buffers:
        xp.copyto(dmask_out, buffers["dmask"], casting="unsafe")


def _accumulate(xp, n, block, out, a, b, buffers, name):
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


def _add_to_mask(xp, dmask, block, ds, scratch):
    """Add the gradient of the scores, summed over what the mask is broadcast over."""
    target = part(dmask, block)
    target = target[..., : ds.shape[3]]
    ds = ds[..., : target.shape[3]]
    axes = tuple(a for a in range(3) if target.shape[a] == 1 and ds.shape[a] != 1)
    if axes:
        total = take(scratch.reshape(-1), target.shape)
        xp.sum(ds, axis=axes, keepdims=True, out=total)
        ds = total
    xp.add(target, ds, out=target)
