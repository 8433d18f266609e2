"""Gradients of attention, a block of rows at a time.

Source: Dao 2023, FlashAttention-2 (arXiv:2307.08691), algorithm 2.  Unlike there, `Σ p dp` is taken
from the block, which holds the scores of its rows with all keys: of forward the operands and `lse`
are read only.  So is `Σ p`: `lse` has the digits of the scores, of which masks of -10⁹ leave none
to the logarithm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.attention import Block, Extras, Shape, shape_of
from gradtool.ops.attention.kernel_scaled import (
    keys_of,
    load,
    mask_of,
    part,
    queries_of,
    scaled,
    scores_of,
    take,
)
from gradtool.ops.attention.kernel_scores import (
    backward_room,
    exponentials,
    greatest,
    hide_by,
    hide_positions,
    reach,
    score,
)
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays

Buffers = Mapping[str, Array]


def _work(
    q: Spec, k: Spec, v: Spec, lse: Spec | None, dy: Spec, dlse: Spec | None = None, *rest: Any,
    out: Sequence[Spec | None], of: Sequence[int] = (), **attributes: Any,
) -> list[Spec]:  # fmt: skip
    others = Extras.of(rest)
    n = shape_of(q, k, v, others.past_k, **attributes)
    return list(backward_room(n, q, others, of, out).values())


@kernel("ai.gradtool::FusedAttentionGrad", strided=True, host=(10,), work=_work)
def fused_attention_grad(
    xp: Any, q: Array, k: Array, v: Array, lse: Array | None, dy: Array, dlse: Array | None = None,
    *rest: Any, out: Arrays, work: Arrays, fill: float = -np.inf, safe: int = 0,
    of: Sequence[int] = (), qk_matmul_output_mode: int = 0, **attributes: Any,
) -> None:  # fmt: skip
    """Gradients by q, all keys, all values and the masks `of`.

    With `p = exp(s - lse) / Σ exp(s - lse)`, or the greatest score of a row in the place of `lse`:

        dv = pᵀ dy    dp = dy vᵀ    ds = p · (dp - Σ p dp + dlse)    dq = ds k · scale
    """
    others, mode = Extras.of(rest), qk_matmul_output_mode
    past_k, past_v, lens = others.past_k, others.past_v, others.lens
    n = shape_of(q, k, v, past_k, **attributes)
    buffers = dict(zip(backward_room(n, q, others, of, out), work, strict=True))
    dq, dk, dv, *dmasks = out
    wide = {i: _zeros(buffers.get(f"dmask{i}", d)) for i, d in zip(of, dmasks, strict=True)}
    added = {i: mask_of(d, n) for i, d in wide.items()}
    q, dq, dy = queries_of(q, n), queries_of(dq, n), queries_of(dy, n)
    lse, dlse, dscores = queries_of(lse, n), queries_of(dlse, n), scores_of(others.dscores, n)
    if past_k is None:
        dk, dv = keys_of(dk, n), keys_of(dv, n)
    k, v, seen = keys_of(k, n), keys_of(v, n), [mask_of(mask, n) for mask in others.masks]
    masked = dscores is not None and mode == 2
    hidden = masked or fill != -np.inf or not safe

    for block in n.blocks():
        if block.first:
            keys = load(xp, block, past_k, k, buffers.get("k"), n)
            values = load(xp, block, past_v, v, buffers.get("v"), n)
        rows = scaled(xp, q, block, buffers["q"], n)
        columns = reach(n, block.rows, lens, whole=dscores is not None)
        given = {} if dscores is None else {mode: dscores[block.queries]}
        p = score(xp, n, block, rows, keys, seen, lens, buffers, columns, fill)
        row = take(buffers["top"], (*p.shape[:3], 1))
        top = greatest(xp, p, row, safe=True) if lse is None else lse[block.queries]
        _normalise(xp, p, top, take(buffers["total"], row.shape))

        dye = dy[block.queries]
        if "dy" in buffers:
            dye = take(buffers["dy"], dye.shape)
            xp.copyto(dye, dy[block.queries])
        _accumulate(xp, block, dv, p.swapaxes(2, 3), dye, buffers, "dv")
        ds = take(buffers["dscores"], p.shape)
        xp.matmul(dye, values[:, :, :columns].swapaxes(2, 3), out=ds)
        _add(xp, ds, given.get(3))
        _through_softmax(xp, p, ds, row, None if dlse is None else dlse[block.queries])
        if masked:
            _add(xp, ds, given[2])
            hide_positions(xp, n, block, ds, lens, buffers, 0)
        _through_masks(xp, block, ds, p, seen, added, buffers.get("flags") if hidden else None)
        _add(xp, ds, given.get(1))
        if n.softcap > 0:
            _through_softcap(xp, ds, take(buffers["bent"], ds.shape))
        _add(xp, ds, given.get(0))
        _accumulate(xp, block, dk, ds.swapaxes(2, 3), rows, buffers, "dk")
        _query_gradient(xp, n, block, dq, ds, keys[:, :, :columns], buffers.get("dq"))
    for i, d in zip(of, dmasks, strict=True):
        if d is not None and wide[i] is not d:
            xp.copyto(d, wide[i], casting="unsafe")


def _normalise(xp: Any, p: Array, top: Array, total: Array) -> None:
    """From scores, in place: `exp(s - top)` over its sum; zero where all are -inf."""
    exponentials(xp, p, top, total)
    xp.copyto(total, 1, where=total == 0)
    xp.divide(p, total, out=p)


def _through_softmax(xp: Any, p: Array, ds: Array, row: Array, dlse: Array | None) -> None:
    """`ds = p · (ds - Σ p ds + dlse)`, in place; `row` takes the sums."""
    xp.matmul(p[..., None, :], ds[..., :, None], out=row[..., None])
    if dlse is not None:
        xp.subtract(row, dlse, out=row)
    xp.subtract(ds, row, out=ds)
    xp.multiply(ds, p, out=ds)


def _through_masks(
    xp: Any, block: Block, ds: Array, scratch: Array, masks: Arrays,
    added: Mapping[int, Array | None], flags: Array | None,
) -> None:  # fmt: skip
    """Add `ds` to the gradients of masks, last first; with `flags` hide what a mask has hidden."""
    for i, mask in reversed(list(enumerate(masks))):
        if mask.dtype == np.bool_ and flags is not None:
            some = part(mask, block)[..., : ds.shape[3]]
            hide_by(xp, some, ds[..., : some.shape[3]], flags, 0)
            xp.copyto(ds[..., some.shape[3] :], 0)
        elif added.get(i) is not None:
            _add_to_mask(xp, added[i], block, ds, scratch)


def _through_softcap(xp: Any, ds: Array, bent: Array) -> None:
    """`ds · (1 - tanh²)`, in place; `bent` holds the tanh."""
    xp.multiply(bent, bent, out=bent)
    xp.subtract(1, bent, out=bent)
    xp.multiply(ds, bent, out=ds)


def _add(xp: Any, ds: Array, given: Array | None) -> None:
    if given is not None:
        xp.add(ds, given, out=ds)


def _zeros(array: Array | None) -> Array | None:
    if array is not None:
        array[...] = 0
    return array


def _query_gradient(
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


def _accumulate(
    xp: Any, block: Block, out: Array | None, a: Array, b: Array, buffers: Buffers, name: str
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


def _add_to_mask(xp: Any, dmask: Array, block: Block, ds: Array, scratch: Array) -> None:
    """Add the gradient of the scores, summed over the broadcast axes of the mask."""
    target = part(dmask, block)[..., : ds.shape[3]]
    ds = ds[..., : target.shape[3]]
    axes = tuple(a for a in range(3) if target.shape[a] == 1 and ds.shape[a] != 1)
    if axes:
        total = take(scratch.reshape(-1), target.shape)
        xp.sum(ds, axis=axes, keepdims=True, out=total)
        ds = total
    xp.add(target, ds, out=target)
