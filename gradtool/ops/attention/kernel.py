"""Attention, rotary embedding, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.operators.attention import Shape, shape_of
from gradtool.ops.attention import (
    kernel_fused as _fused_attention,
)
from gradtool.ops.attention import (
    kernel_rotary as _rotary,
)
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
    queries_of,
    scaled,
    scores_of,
    take,
)
from gradtool.ops.attention.kernel_scores import (
    backward_room,
    exponentials,
    forward_room,
    hide,
    reach,
    score,
)
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays

__all__ = ["_fused_attention", "_rotary"]


def _forward_work(
    q: Spec,
    k: Spec,
    v: Spec,
    mask: Spec | None = None,
    past_k: Spec | None = None,
    past_v: Spec | None = None,
    lens: Array | None = None,
    *,
    out: Sequence[Spec | None],
    **attributes: Any,
) -> list[Spec]:
    n = shape_of(q, k, v, past_k, **attributes)
    return list(_forward_room(n, q, mask, lens, out, attributes).values())


def _forward_room(
    n: Shape,
    q: Array | Spec,
    mask: Array | Spec | None,
    lens: Array | None,
    out: Sequence[Array | Spec | None],
    attributes: Mapping[str, Any],
) -> dict[str, Spec]:
    shown = len(out) > 3 and out[3] is not None
    return forward_room(
        n, mask, lens, narrow=n.dtype != q.dtype and out[0] is not None,
        every=shown and attributes.get("qk_matmul_output_mode", 0) < 2,
    )  # fmt: skip


@kernel("Attention", strided=True, host=(6,), work=_forward_work)
def attention(
    xp: Any,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    past_k: Array | None = None,
    past_v: Array | None = None,
    lens: Array | None = None,
    *,
    out: Arrays,
    work: Arrays,
    **attributes: Any,
) -> None:
    """`Y = softmax(q kᵀ · scale + bias) v`, and the keys, values and scores asked for.

    A row that may not look at any key is zero.  Scores are shown on the way, so that Y does not
    depend on whether they are.
    """
    n = shape_of(q, k, v, past_k, **attributes)
    mode = attributes.get("qk_matmul_output_mode", 0)
    y, present_k, present_v, shown = (*out, None, None, None)[:4]
    room = _forward_room(n, q, mask, lens, out, attributes)
    buffers = dict(zip(room, work, strict=True))
    q, k, v, mask = queries_of(q, n), keys_of(k, n), keys_of(v, n), mask_of(mask, n)
    _present(xp, n, present_k, past_k, k)
    _present(xp, n, present_v, past_v, v)
    y, shown = queries_of(y, n), scores_of(shown, n)

    for block in n.blocks():
        if block.first:
            keys = load(xp, block, past_k, k, buffers.get("k"), n)
            values = load(xp, block, past_v, v, buffers.get("v"), n)
        rows = scaled(xp, q, block, buffers["q"], n)
        columns = reach(n, block.rows, lens)
        seen = None if shown is None else shown[block.queries]
        scores = score(xp, n, block, rows, keys, mask, lens, buffers, columns, seen, mode)
        top, total = (take(buffers[name], (*rows.shape[:3], 1)) for name in ("top", "total"))
        exponentials(xp, scores, top, total)
        if seen is not None and mode == 3:
            xp.divide(scores, total, out=seen[..., :columns], casting="unsafe")
            xp.copyto(seen[..., columns:], 0)
        if y is not None:
            target = y[block.queries]
            result = take(buffers["y"], target.shape) if "y" in buffers else target
            xp.matmul(scores, values[:, :, :columns], out=result)
            xp.divide(result, total, out=result)
            if result is not target:
                xp.copyto(target, result, casting="unsafe")


def _present(xp: Any, n: Shape, out: Array | None, past: Array | None, new: Array) -> None:
    """All keys (or values): past ones, then new ones."""
    if out is not None:
        xp.copyto(out[:, :, n.past :], new)
        if past is not None:
            xp.copyto(out[:, :, : n.past], past)


def _backward_work(
    q: Spec,
    k: Spec,
    v: Spec,
    mask: Spec | None,
    past_k: Spec | None,
    past_v: Spec | None,
    lens: Array | None,
    dy: Spec,
    dscores: Spec | None = None,
    *,
    out: Sequence[Spec | None],
    qk_matmul_output_mode: int = 0,
    **rest: Any,
) -> list[Spec]:
    n = shape_of(q, k, v, past_k, **rest)
    return list(backward_room(n, mask, lens, q, dscores, qk_matmul_output_mode, out).values())


@kernel("ai.gradtool::AttentionGrad", strided=True, host=(6,), work=_backward_work)
def attention_grad(
    xp: Any, q: Array, k: Array, v: Array, mask: Array | None, past_k: Array | None,
    past_v: Array | None, lens: Array | None, dy: Array, dscores: Array | None = None, *,
    out: Arrays, work: Arrays, qk_matmul_output_mode: int = 0, **attributes: Any,
) -> None:  # fmt: skip
    """Gradients by q, all keys, all values, and a float mask.

    With `e = exp(s - max)` and rows of dy divided by `Σe`:

        dv = eᵀ dy    dp = dy vᵀ    ds = e · (dp - Σ(e · dp) / Σe)    dq = ds k · scale
    """
    n, mode = shape_of(q, k, v, past_k, **attributes), qk_matmul_output_mode
    room = backward_room(n, mask, lens, q, dscores, mode, out)
    buffers = dict(zip(room, work, strict=True))
    dq, dk, dv, dmask = (*out, None)[:4]
    dq, dy, dscores = queries_of(dq, n), queries_of(dy, n), scores_of(dscores, n)
    if past_k is None:
        dk, dv = keys_of(dk, n), keys_of(dv, n)
    q, k, v, mask = queries_of(q, n), keys_of(k, n), keys_of(v, n), mask_of(mask, n)
    bias = zeros(None if dmask is None else mask_of(buffers.get("dmask", dmask), n))

    for block in n.blocks():
        if block.first:
            keys = load(xp, block, past_k, k, buffers.get("k"), n)
            values = load(xp, block, past_v, v, buffers.get("v"), n)
        rows = scaled(xp, q, block, buffers["q"], n)
        columns = reach(n, block.rows, lens, whole=dscores is not None)
        given = {} if dscores is None else {mode: dscores[block.queries]}
        e = score(xp, n, block, rows, keys, mask, lens, buffers, columns)
        top, total = (take(buffers[name], (*rows.shape[:3], 1)) for name in ("top", "total"))
        exponentials(xp, e, top, total)

        weighted = take(buffers["dy"], (*rows.shape[:3], n.value_size))
        xp.divide(dy[block.queries], total, out=weighted)
        accumulate(xp, block, dv, e.swapaxes(2, 3), weighted, buffers, "dv")
        ds = take(buffers["dscores"], e.shape)
        xp.matmul(weighted, values[:, :, :columns].swapaxes(2, 3), out=ds)
        _through_softmax(xp, ds, e, total, given.get(3), buffers)
        if 2 in given:
            xp.add(ds, given[2], out=ds)
            hide(xp, n, block, ds, mask, lens, buffers, 0)
        if bias is not None:
            add_to_mask(xp, bias, block, ds, e)
        _add(xp, ds, given.get(1))
        if n.softcap > 0:
            _through_softcap(xp, ds, take(buffers["bent"], e.shape))
        _add(xp, ds, given.get(0))
        accumulate(xp, block, dk, ds.swapaxes(2, 3), rows, buffers, "dk")
        query_gradient(xp, n, block, dq, ds, keys[:, :, :columns], buffers.get("dq"))
    if "dmask" in buffers and dmask is not None:
        xp.copyto(dmask, buffers["dmask"], casting="unsafe")


def _through_softmax(
    xp: Any, ds: Array, e: Array, total: Array, given: Array | None, buffers: Mapping[str, Array]
) -> None:
    """From `dp / Σe`, in place: `ds = e · (dp - Σ(e · dp) / Σe)`; `given` adds to dp."""
    row = take(buffers["row"], total.shape)
    if given is not None:
        extra = take(buffers["given"], e.shape)
        xp.divide(given, total, out=extra)
        xp.add(ds, extra, out=ds)
    xp.matmul(e[..., None, :], ds[..., :, None], out=row[..., None])
    xp.divide(row, total, out=row)
    xp.subtract(ds, row, out=ds)
    xp.multiply(ds, e, out=ds)


def _through_softcap(xp: Any, ds: Array, bent: Array) -> None:
    """`ds · (1 - tanh²)`, in place; `bent` holds the tanh."""
    xp.multiply(bent, bent, out=bent)
    xp.subtract(1, bent, out=bent)
    xp.multiply(ds, bent, out=ds)


def _add(xp: Any, ds: Array, given: Array | None) -> None:
    if given is not None:
        xp.add(ds, given, out=ds)
