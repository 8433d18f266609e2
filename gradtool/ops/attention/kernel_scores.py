"""The scores of a block of attention: masks, exponentials, and their workspace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.attention import Block, Extras, Shape
from gradtool.ops.attention.kernel_scaled import part, take
from gradtool.ops.shared.types import Array, Arrays


def reach(n: Shape, rows: slice, lens: Array | None, *, whole: bool = False) -> int:
    """Number of keys visible to any of some rows; all of them if `whole`."""
    if whole or not n.causal or lens is not None:
        return n.keys
    end: int = rows.stop + n.past
    return max(1, min(n.keys, end))


def hide_positions(
    xp: Any, n: Shape, block: Block, scores: Array, lens: Array | None,
    buffers: Mapping[str, Array], fill: float,
) -> None:  # fmt: skip
    """Put `fill` where causality, the window or the lengths forbid to look."""
    if n.causal or n.window != (-1, -1):
        if lens is None:
            hide_diagonals(xp, n, scores, n.past + block.rows.start, buffers["line"], fill)
        else:
            for b, length in enumerate(lens[block.batches]):
                offset = int(length) - n.queries + block.rows.start
                hide_diagonals(xp, n, scores[b : b + 1], offset, buffers["line"], fill)
    if lens is not None:
        for b, length in enumerate(lens[block.batches]):
            xp.copyto(scores[b, ..., max(int(length), 0) :], fill)


def hide_by(xp: Any, seen: Array, scores: Array, flags: Array, fill: float) -> None:
    """Put `fill` where a boolean mask is false."""
    hidden = take(flags, seen.shape)
    xp.logical_not(seen, out=hidden)
    xp.copyto(scores, fill, where=hidden)


def hide_diagonals(xp: Any, n: Shape, scores: Array, offset: int, line: Array, fill: float) -> None:
    """Hide scores outside of `low <= column - row - offset <= high`.

    The flags of all rows are one line, seen shifted by one from row to row.
    """
    rows, columns = scores.shape[2:]
    left, right = n.window
    high = right if right >= 0 else columns + rows
    high = min(high, 0) if n.causal else high
    line = line[: rows + columns - 1]
    line[...] = True
    start = 0 if left < 0 else max(0, offset - left + rows - 1)
    line[start : max(0, offset + high + rows)] = False
    step = line.strides[0]
    flags = xp.lib.stride_tricks.as_strided(
        line[rows - 1 :], shape=(rows, columns), strides=(-step, step)
    )
    xp.copyto(scores, fill, where=flags)


def greatest(xp: Any, scores: Array, top: Array, *, safe: bool) -> Array:
    """The greatest score of each row in `top`; with `safe` a finite one where all are -inf."""
    xp.max(scores, axis=3, keepdims=True, out=top)
    if safe:
        xp.maximum(top, float(np.finfo(scores.dtype).min), out=top)
    return top


def exponentials(xp: Any, scores: Array, top: Array, total: Array) -> None:
    """`scores = exp(scores - top)` and `total` their sum, by row."""
    xp.subtract(scores, top, out=scores)
    xp.exp(scores, out=scores)
    xp.sum(scores, axis=3, keepdims=True, out=total)


def score(
    xp: Any, n: Shape, block: Block, q: Array, k: Array, masks: Arrays, lens: Array | None,
    buffers: Mapping[str, Array], columns: int, fill: float = -np.inf, shown: Array | None = None,
    mode: int = 0,
) -> Array:  # fmt: skip
    """The masked scores of a block, [B, G, S, T]; `shown` gets them as they are at stage `mode`.

    The queries are scaled already.  Masks of floats are added, false flags put `fill`, in their
    order; keys beyond the end of a mask are hidden, and so are places, last.  With a soft cap
    `buffers["bent"]`, if there, gets the tanh.
    """
    scores = take(buffers["scores"], (*q.shape[:3], columns))
    xp.matmul(q, k[:, :, :columns].swapaxes(2, 3), out=scores)
    if shown is not None and mode == 0:
        show(xp, shown, scores, _unseen(xp, n, q, k, scores, buffers))
    if n.softcap > 0:
        xp.divide(scores, n.softcap, out=scores)
        xp.tanh(scores, out=scores)
        if "bent" in buffers:
            xp.copyto(take(buffers["bent"], scores.shape), scores)
        xp.multiply(scores, n.softcap, out=scores)
    if shown is not None and mode == 1:
        rest = _unseen(xp, n, q, k, scores, buffers)
        if n.softcap > 0:
            xp.divide(rest, n.softcap, out=rest)
            xp.tanh(rest, out=rest)
            xp.multiply(rest, n.softcap, out=rest)
        show(xp, shown, scores, rest)
    for mask in masks:
        some = part(mask, block)[..., :columns]
        met = scores[..., : some.shape[3]]
        if mask.dtype == np.bool_:
            hide_by(xp, some, met, buffers["flags"], fill)
        else:
            xp.add(met, some, out=met)
        xp.copyto(scores[..., some.shape[3] :], -np.inf)
    hide_positions(xp, n, block, scores, lens, buffers, -np.inf)
    if shown is not None and mode == 2:
        show(xp, shown, scores, -np.inf)
    return scores


def show(xp: Any, shown: Array, scores: Array, rest: Array | float) -> None:
    """Write the scores of the first keys, and `rest` for keys unseen by all rows of the block."""
    columns = scores.shape[3]
    xp.copyto(shown[..., :columns], scores, casting="unsafe")
    xp.copyto(shown[..., columns:], rest, casting="unsafe")


def _unseen(
    xp: Any, n: Shape, q: Array, k: Array, scores: Array, buffers: Mapping[str, Array]
) -> Array:
    """The products with the keys that no row of a block sees, behind its scores."""
    columns = scores.shape[3]
    rest = take(buffers["scores"][scores.size :], (*scores.shape[:3], n.keys - columns))
    if rest.size:
        xp.matmul(q, k[:, :, columns:].swapaxes(2, 3), out=rest)
    return rest


def forward_room(
    n: Shape,
    q: Array | Spec,
    masks: Sequence[Array | Spec],
    lens: Array | None,
    out: Sequence[Array | Spec | None],
    *,
    every: bool = False,
) -> dict[str, Spec]:
    """The buffers of the forward kernels; `every` score is computed even of keys not seen."""
    room = _shared_room(n, masks, lens, every=every, whole=False)
    if n.dtype != q.dtype and out[0] is not None:
        room["y"] = Spec((math.prod(n.at_once) * n.value_size,), n.dtype)
    return room


def _shared_room(
    n: Shape, masks: Sequence[Array | Spec], lens: Array | None, *, every: bool, whole: bool
) -> dict[str, Spec]:
    b, g, rows = n.at_once
    spans = sizes_of(n, lens, whole=whole)
    room = {
        "scores": Spec((b * g * max(s * (n.keys if every else t) for s, t in spans),), n.dtype),
        "q": Spec((b * g * rows * n.size,), n.dtype),
        "top": Spec((b * g * rows,), n.dtype),
        "total": Spec((b * g * rows,), n.dtype),
    }
    shapes = [mask.shape for mask in masks if mask.dtype == np.bool_]
    if shapes:
        most = max(seen_by(n, shape, s, t) for shape in shapes for s, t in spans)
        room["flags"] = Spec((most,), np.dtype(bool))
    if n.causal or n.window != (-1, -1):
        room["line"] = Spec((max(s + t - 1 for s, t in spans),), np.dtype(bool))
    if n.gathered:
        room["k"] = Spec((b * g * n.keys * n.size,), n.dtype)
        room["v"] = Spec((b * g * n.keys * n.value_size,), n.dtype)
    return room


def sizes_of(n: Shape, lens: Array | None, *, whole: bool) -> list[tuple[int, int]]:
    """Rows and columns of the blocks of a head."""
    found = [(rows.stop - rows.start, reach(n, rows, lens, whole=whole)) for rows in n.spans]
    return found or [(0, 0)]


def seen_by(n: Shape, mask: tuple[int, ...], rows: int, columns: int) -> int:
    """Elements of a mask of this shape within a block."""
    b, g, _ = n.at_once
    batch, heads, queries, keys = (1,) * (4 - len(mask)) + tuple(mask)
    some = (b if batch > 1 else 1) * (g if heads > 1 else 1) * (rows if queries > 1 else 1)
    return some * min(keys, columns)


def backward_room(
    n: Shape, q: Array | Spec, others: Extras, of: Sequence[int], out: Sequence[Array | Spec | None]
) -> dict[str, Spec]:
    """The buffers of the gradients wanted in `out`."""
    dq, dk, dv, *dmasks = out
    b, g, rows = n.at_once
    lens, whole = others.lens, others.dscores is not None
    room = _shared_room(n, others.masks, lens, every=False, whole=whole)
    room["dscores"] = room["scores"]
    later = (sizes_of(n, lens, whole=whole) * n.heads)[1:]
    widths = [w for d, w in ((dk, n.size), (dv, n.value_size)) if d is not None]
    if later and widths:
        room["sum"] = Spec((b * g * max(t for _, t in later) * max(widths),), n.dtype)
    if n.softcap > 0:
        room["bent"] = room["scores"]
    if n.gathered:
        room |= {f"d{name}": room[name] for name, d in (("k", dk), ("v", dv)) if d is not None}
    if n.dtype != q.dtype:
        room["dy"] = Spec((b * g * rows * n.value_size,), n.dtype)
        room |= {} if dq is None else {"dq": room["q"]}
    for index, d in zip(of, dmasks, strict=False):
        if d is not None and d.dtype != n.dtype:
            room[f"dmask{index}"] = Spec(d.shape, n.dtype)
    return room
