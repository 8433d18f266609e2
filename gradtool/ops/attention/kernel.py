"""Attention, a block of rows at a time.

Source: Dao 2023, FlashAttention-2 (arXiv:2307.08691), algorithms 1 and 2.  Unlike there, a block
holds the scores of its rows with all keys: one pass finds the statistic of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.attention import Shape, shape_of
from gradtool.ops.attention.kernel_scaled import (
    keys_of,
    load,
    mask_of,
    queries_of,
    scaled,
    scores_of,
    take,
)
from gradtool.ops.attention.kernel_scores import exponentials, forward_room, greatest, reach, score
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays

Buffers = Mapping[str, Array]


def _room(
    n: Shape,
    q: Array | Spec,
    mask: Array | Spec | None,
    lens: Array | None,
    out: Sequence[Array | Spec | None],
    mode: int = 0,
) -> dict[str, Spec]:
    every = len(out) > 3 and out[3] is not None and mode < 2
    return forward_room(n, q, [] if mask is None else [mask], lens, out, every=every)


def _forward_work(
    q: Spec, k: Spec, v: Spec, mask: Spec | None = None, past_k: Spec | None = None,
    past_v: Spec | None = None, lens: Array | None = None, *, out: Sequence[Spec | None],
    qk_matmul_output_mode: int = 0, **attributes: Any,
) -> list[Spec]:  # fmt: skip
    n = shape_of(q, k, v, past_k, **attributes)
    return list(_room(n, q, mask, lens, out, qk_matmul_output_mode).values())


@kernel("Attention", strided=True, host=(6,), work=_forward_work)
def attention(
    xp: Any, q: Array, k: Array, v: Array, mask: Array | None = None, past_k: Array | None = None,
    past_v: Array | None = None, lens: Array | None = None, *, out: Arrays, work: Arrays,
    qk_matmul_output_mode: int = 0, **attributes: Any,
) -> None:  # fmt: skip
    """`Y = softmax(q kᵀ · scale + bias) v`, and the keys, values and scores asked for.

    A row that may not look at any key is zero.  Scores are shown on the way, so that Y does not
    depend on whether they are.
    """
    n, mode = shape_of(q, k, v, past_k, **attributes), qk_matmul_output_mode
    y, present_k, present_v, shown = (*out, None, None, None)[:4]
    buffers = dict(zip(_room(n, q, mask, lens, out, mode), work, strict=True))
    for present, past, new in ((present_k, past_k, k), (present_v, past_v, v)):
        if present is not None:
            xp.copyto(present[:, :, n.past :], keys_of(new, n))
            if past is not None:
                xp.copyto(present[:, :, : n.past], past)
    _attend(
        xp, n, q, k, v, [] if mask is None else [mask], y, None, buffers, past=(past_k, past_v),
        lens=lens, shown=shown, mode=mode, safe=True,
    )  # fmt: skip


def _fused_work(
    q: Spec, k: Spec, v: Spec, *masks: Spec, out: Sequence[Spec | None], **attributes: Any
) -> list[Spec]:
    return list(forward_room(shape_of(q, k, v, **attributes), q, masks, None, out).values())


@kernel("ai.gradtool::FusedAttention", strided=True, work=_fused_work)
def fused_attention(
    xp: Any, q: Array, k: Array, v: Array, *masks: Array, out: Arrays, work: Arrays,
    fill: float = -np.inf, safe: int = 0, **attributes: Any,
) -> None:  # fmt: skip
    """`Y = p v` and `lse = log Σ exp s`, with `s = masked(q kᵀ · scale)` and `p = exp(s - lse)`.

    Masks [B, H, S, T] have sizes of one where they are broadcast.  A row of only -inf is NaN, as
    its softmax is; with `safe` it is zero and its `lse` infinite.
    """
    n = shape_of(q, k, v, **attributes)
    buffers = dict(zip(forward_room(n, q, masks, None, out), work, strict=True))
    y, lse = (*out, None)[:2]
    _attend(xp, n, q, k, v, masks, y, lse, buffers, fill=fill, safe=bool(safe))


def _attend(
    xp: Any, n: Shape, q: Array, k: Array, v: Array, masks: Sequence[Array], y: Array | None,
    lse: Array | None, buffers: Buffers, *, past: Sequence[Array | None] = (None, None),
    lens: Array | None = None, fill: float = -np.inf, safe: bool, shown: Array | None = None,
    mode: int = 0,
) -> None:  # fmt: skip
    """The results of all blocks: Y, the statistic of rows, and the scores at stage `mode`."""
    q, k, v = queries_of(q, n), keys_of(k, n), keys_of(v, n)
    y, lse, shown = queries_of(y, n), queries_of(lse, n), scores_of(shown, n)
    masks = [mask_of(mask, n) for mask in masks]
    for block in n.blocks():
        if block.first:
            keys = load(xp, block, past[0], k, buffers.get("k"), n)
            values = load(xp, block, past[1], v, buffers.get("v"), n)
        rows = scaled(xp, q, block, buffers["q"], n)
        columns = reach(n, block.rows, lens)
        seen = None if shown is None else shown[block.queries]
        e = score(xp, n, block, rows, keys, masks, lens, buffers, columns, fill, seen, mode)
        top, total = (take(buffers[name], (*rows.shape[:3], 1)) for name in ("top", "total"))
        exponentials(xp, e, greatest(xp, e, top, safe=safe), total)
        if safe:
            xp.copyto(top, np.inf, where=total == 0)
            xp.copyto(total, 1, where=total == 0)
        if seen is not None and mode == 3:
            xp.divide(e, total, out=seen[..., :columns], casting="unsafe")
            xp.copyto(seen[..., columns:], 0)
        if y is not None:
            target = y[block.queries]
            result = take(buffers["y"], target.shape) if "y" in buffers else target
            xp.matmul(e, values[:, :, :columns], out=result)
            xp.divide(result, total, out=result)
            if result is not target:
                xp.copyto(target, result, casting="unsafe")
        if lse is not None:
            xp.log(total, out=total)
            xp.add(top, total, out=lse[block.queries])
