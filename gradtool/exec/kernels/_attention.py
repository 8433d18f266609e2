"""Scaled dot product attention and its gradient, a block of scores at a time.

Scores of some query rows of some heads are computed, used and forgotten: the workspace depends
neither on the batch nor on the number of heads, and the matrix of all scores never exists.
Operands are views [B, G, n, S, D]: `G` heads of keys, each read by `n` heads of queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.program import Spec

SCORES = 1 << 17  # scores in a block: 512 KiB of float32
FLOAT, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


@dataclass(frozen=True)
class Block:
    """Some rows of queries of head `head` of each group: what is computed at once."""

    batches: slice
    groups: slice
    head: int
    rows: slice
    first: bool
    last: bool

    @property
    def keys(self) -> tuple[slice, slice]:
        """The index of the keys and values that the block reads."""
        return self.batches, self.groups

    @property
    def queries(self) -> tuple[slice, slice, int, slice]:
        """The index of the rows that the block computes."""
        return self.batches, self.groups, self.head, self.rows


@dataclass(frozen=True)
class Shape:
    """Sizes and options of an attention node."""

    batch: int
    groups: int
    heads: int
    queries: int
    keys: int
    past: int
    size: int
    value_size: int
    gathered: bool
    dtype: np.dtype[Any]
    scale: float
    causal: bool
    softcap: float
    window: tuple[int, int]

    @property
    def at_once(self) -> tuple[int, int, int]:
        """How many batches, groups and rows a block has."""
        total = max(self.keys, 1)
        rows = max(1, min(self.queries, SCORES // total))
        if rows < self.queries:
            return 1, 1, rows
        groups = max(1, min(self.groups, SCORES // (total * max(rows, 1))))
        if groups < self.groups:
            return 1, groups, rows
        return max(1, min(self.batch, SCORES // (total * max(rows, 1) * groups))), groups, rows

    @property
    def block(self) -> tuple[int, ...]:
        """The shape of the largest block of scores."""
        return (*self.at_once, self.keys)

    def blocks(self) -> Iterator[Block]:
        """Every block; those that read the same keys follow each other, `first` to `last`."""
        batches, groups, rows = self.at_once
        turns = [(head, r) for head in range(self.heads) for r in range(0, self.queries, rows)]
        for b in range(0, self.batch, batches):
            for g in range(0, self.groups, groups):
                for turn, (head, r) in enumerate(turns):
                    yield Block(
                        slice(b, min(b + batches, self.batch)),
                        slice(g, min(g + groups, self.groups)),
                        head, slice(r, min(r + rows, self.queries)),
                        turn == 0, turn == len(turns) - 1,
                    )  # fmt: skip


def shape_of(
    q, k, v, past=None, *,
    scale=None, is_causal=0, q_num_heads=None, kv_num_heads=None, softcap=0.0,
    softmax_precision=None, qk_matmul_output_mode=0, left_window_size=-1, right_window_size=-1,
) -> Shape:  # fmt: skip
    """The sizes of a node from its operands, and its options.

    Scores are float32 for half precision, and float64 if `softmax_precision` says so.
    """
    if len(q.shape) == 4:
        heads, groups, size, value_size = q.shape[1], k.shape[1], q.shape[3], v.shape[3]
    else:
        heads, groups = q_num_heads, kv_num_heads
        size, value_size = q.shape[2] // heads, v.shape[2] // groups
    dtype = DOUBLE if DOUBLE in (q.dtype, v.dtype) or softmax_precision == 11 else FLOAT
    before = 0 if past is None else past.shape[2]
    return Shape(
        q.shape[0], groups, heads // groups, q.shape[-2], before + k.shape[-2], before, size,
        value_size, past is not None or not q.dtype == k.dtype == v.dtype == dtype, dtype, 1 / math.sqrt(size) if scale is None else scale, bool(is_causal),
        float(softcap or 0), (left_window_size, right_window_size),
    )  # fmt: skip


def queries_of(a, n: Shape):
    """[B, G·n, S, D] or [B, S, G·n·D] as a view [B, G, n, S, D]."""
    if a is None:
        return None
    if a.ndim == 4:
        return a.reshape(n.batch, n.groups, n.heads, *a.shape[2:])
    return a.reshape(n.batch, -1, n.groups, n.heads, a.shape[2] // (n.groups * n.heads)).transpose(
        0, 2, 3, 1, 4
    )


def keys_of(a, n: Shape):
    """[B, G, T, D] or [B, T, G·D] as a view [B, G, T, D]."""
    if a is None or a.ndim == 4:
        return a
    return a.reshape(n.batch, -1, n.groups, a.shape[2] // n.groups).transpose(0, 2, 1, 3)


def mask_of(mask, n: Shape):
    """A mask as a view [B, G, n, S, M] with sizes of one where it is broadcast."""
    if mask is None:
        return None
    b, h, s, m = (1,) * (4 - mask.ndim) + mask.shape
    return mask.reshape(b, *((1, 1) if h == 1 else (n.groups, n.heads)), s, m)


def part(mask, block: Block):
    """What a block sees of a mask: [B, G, S, M], of size one where it is broadcast."""
    wanted = (block.batches, block.groups, block.head, block.rows)
    index = [0 if isinstance(w, int) else slice(None) for w in wanted]
    for axis, w in enumerate(wanted):
        if mask.shape[axis] != 1:
            index[axis] = w
    return mask[tuple(index)]


def take(buffer, shape):
    """The first elements of a flat buffer, as an array of `shape`."""
    return buffer[: math.prod(shape)].reshape(shape)


def load(xp, block: Block, past, new, buffer, n: Shape):
    """Keys or values of a block, `past` ones first: a view of `new`, or a copy in `buffer`."""
    if not n.gathered:
        return new[block.keys]
    now = new[block.keys]
    found = take(buffer, (*now.shape[:2], n.keys, now.shape[3]))
    if past is not None:
        xp.copyto(found[:, :, : n.past], past[block.keys])
    if block.first:
        xp.copyto(found[:, :, n.past :], now)
    return found


def scaled(xp, q, block: Block, buffer, n: Shape):
    """The queries of a block times the scale, in the type of the scores."""
    rows = q[block.queries]
    found = take(buffer, rows.shape)
    xp.copyto(found, rows)
    xp.multiply(found, n.scale, out=found)
    return found


def reach(n: Shape, block: Block, lens, *, whole: bool) -> int:
    """How many of the keys any row of a block may see."""
    if whole or not n.causal or lens is not None:
        return n.keys
    return max(1, min(n.keys, block.rows.stop + n.past))


def hide(xp, n: Shape, block: Block, scores, mask, lens, buffers, fill):
    """Put `fill` where a boolean mask, causality, the window or the lengths forbid to look."""
    columns = scores.shape[3]
    if mask is not None:
        seen = part(mask, block)[..., :columns]
        xp.copyto(scores[..., seen.shape[3] :], fill)
        if mask.dtype == np.bool_:
            hidden = take(buffers["flags"], seen.shape)
            xp.logical_not(seen, out=hidden)
            xp.copyto(scores[..., : seen.shape[3]], fill, where=hidden)
    if n.causal or n.window != (-1, -1):
        if lens is None:
            _hide_diagonals(xp, n, scores, n.past + block.rows.start, buffers["line"], fill)
        else:
            for b, length in enumerate(lens[block.batches]):
                offset = int(length) - n.queries + block.rows.start
                _hide_diagonals(xp, n, scores[b : b + 1], offset, buffers["line"], fill)
    if lens is not None:
        for b, length in enumerate(lens[block.batches]):
            xp.copyto(scores[b, ..., max(int(length), 0) :], fill)


def _hide_diagonals(xp, n: Shape, scores, offset, line, fill):
    """Hide what is outside of `low <= column - row - offset <= high`.

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


def exponentials(xp, scores, top, total):
    """`scores = exp(scores - max)` and `total` their sum, by row; a row of only -inf gives zeros.

    The sum of such a row is said to be one.
    """
    xp.max(scores, axis=3, keepdims=True, out=top)
    xp.maximum(top, float(np.finfo(scores.dtype).min), out=top)
    xp.subtract(scores, top, out=scores)
    xp.exp(scores, out=scores)
    xp.sum(scores, axis=3, keepdims=True, out=total)
    xp.copyto(total, 1, where=total == 0)


def forward_room(n: Shape, mask, lens, narrow) -> dict[str, Spec]:
    """The buffers of the forward kernel."""
    b, g, rows, columns = n.block
    room = {
        "scores": Spec((b * g * rows * columns,), n.dtype),
        "q": Spec((b * g * rows * n.size,), n.dtype),
        "top": Spec((b * g * rows,), n.dtype),
        "total": Spec((b * g * rows,), n.dtype),
    }
    if mask is not None and mask.dtype == np.bool_:
        room["flags"] = Spec((b * g * rows * columns,), np.dtype(bool))
    if n.causal or n.window != (-1, -1):
        room["line"] = Spec((rows + columns,), np.dtype(bool))
    if n.gathered:
        room["k"] = Spec((b * g * columns * n.size,), n.dtype)
        room["v"] = Spec((b * g * columns * n.value_size,), n.dtype)
    if narrow:
        room["y"] = Spec((b * g * rows * n.value_size,), n.dtype)
    return room


def score(xp, n: Shape, block: Block, q, k, mask, lens, buffers, columns, shown=None, mode=0):
    """The masked scores of a block, [B, G, S, T]; `shown` gets them as they are at stage `mode`.

    The queries are scaled already.  With a soft cap `buffers["bent"]`, if there, gets the tanh.
    """
    scores = take(buffers["scores"], (*q.shape[:3], columns))
    xp.matmul(q, k[:, :, :columns].swapaxes(2, 3), out=scores)
    if shown is not None and mode == 0:
        xp.copyto(shown, scores, casting="unsafe")
    if n.softcap > 0:
        xp.divide(scores, n.softcap, out=scores)
        xp.tanh(scores, out=scores)
        if "bent" in buffers:
            xp.copyto(take(buffers["bent"], scores.shape), scores)
        xp.multiply(scores, n.softcap, out=scores)
    if shown is not None and mode == 1:
        xp.copyto(shown, scores, casting="unsafe")
    if mask is not None and mask.dtype != np.bool_:
        seen = part(mask, block)[..., :columns]
        xp.add(scores[..., : seen.shape[3]], seen, out=scores[..., : seen.shape[3]])
    hide(xp, n, block, scores, mask, lens, buffers, -np.inf)
    if shown is not None and mode == 2:
        xp.copyto(shown, scores, casting="unsafe")
    return scores
