"""Sizes and options of an attention node, and its blocks of scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.operators.block_size import at_a_time

SCORES, MOST = 1 << 17, 1 << 22  # scores in a block, here and on a device
FLOAT, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


@dataclass(frozen=True)
class Block:
    """Some rows of queries of head `head` of each group, computed at once."""

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
        """Number of batches, groups and rows of a block."""
        total, scores = max(self.keys, 1), at_a_time(SCORES, MOST)
        rows = max(1, min(self.queries, scores // total))
        if rows < self.queries:
            return 1, 1, rows
        groups = max(1, min(self.groups, scores // (total * max(rows, 1))))
        if groups < self.groups:
            return 1, groups, rows
        return max(1, min(self.batch, scores // (total * max(rows, 1) * groups))), groups, rows

    @property
    def spans(self) -> list[slice]:
        """The rows of each block of a head."""
        _, _, rows = self.at_once
        return [slice(r, min(r + rows, self.queries)) for r in range(0, self.queries, rows)]

    def blocks(self) -> Iterator[Block]:
        """Every block; blocks of the same keys follow each other, `first` to `last`."""
        batches, groups, _ = self.at_once
        turns = [(head, rows) for head in range(self.heads) for rows in self.spans]
        for b in range(0, self.batch, batches):
            for g in range(0, self.groups, groups):
                for turn, (head, rows) in enumerate(turns):
                    yield Block(
                        slice(b, min(b + batches, self.batch)),
                        slice(g, min(g + groups, self.groups)),
                        head, rows, turn == 0, turn == len(turns) - 1,
                    )  # fmt: skip


@dataclass(frozen=True)
class Extras:
    """Optional operands of the gradient of attention, behind Q, K, V, the statistic and gradients.

    They are masks, the gradient of the scores that forward shows, keys and values of the past, and
    lengths.  The first mask comes first, the others last.
    """

    masks: Sequence[Any] = ()
    dscores: Any = None
    past_k: Any = None
    past_v: Any = None
    lens: Any = None

    @staticmethod
    def of(inputs: Sequence[Any]) -> Extras:
        """The operands of these inputs."""
        given: list[Any] = [*inputs, *[None] * (5 - len(inputs))]
        mask, dscores, past_k, past_v, lens, *more = given
        masks = [m for m in (mask, *more) if m is not None]
        return Extras(masks, dscores, past_k, past_v, lens)

    @property
    def inputs(self) -> list[Any]:
        """The operands in their order, but for absent ones at the end."""
        others = self.dscores, self.past_k, self.past_v, self.lens
        found = [*(self.masks[:1] or [None]), *others, *self.masks[1:]]
        while found and found[-1] is None:
            found.pop()
        return found


def shape_of(
    q: Any, k: Any, v: Any, past: Any | None = None, *,
    scale: float | None = None, is_causal: int = 0, q_num_heads: int | None = None,
    kv_num_heads: int | None = None, softcap: float = 0.0, softmax_precision: int | None = None,
    left_window_size: int = -1, right_window_size: int = -1, **_: object,
) -> Shape:  # fmt: skip
    """The sizes of a node from its operands, and its options.

    Scores are float32 for half precision, and float64 if `softmax_precision` says so.
    """
    if len(q.shape) == 4:
        heads, groups, size, value_size = q.shape[1], k.shape[1], q.shape[3], v.shape[3]
    else:
        assert q_num_heads and kv_num_heads  # noqa: PT018, S101 - the standard requires them
        heads, groups = q_num_heads, kv_num_heads
        size, value_size = q.shape[2] // heads, v.shape[2] // groups
    dtype = DOUBLE if DOUBLE in (q.dtype, v.dtype) or softmax_precision == 11 else FLOAT
    before = 0 if past is None else past.shape[2]
    gathered = past is not None or not q.dtype == k.dtype == v.dtype == dtype
    scale = 1 / math.sqrt(size) if scale is None else scale
    return Shape(
        q.shape[0], groups, heads // groups, q.shape[-2], before + k.shape[-2], before, size,
        value_size, gathered, dtype, scale, bool(is_causal), float(softcap or 0),
        (left_window_size, right_window_size),
    )  # fmt: skip
