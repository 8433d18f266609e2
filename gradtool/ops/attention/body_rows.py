"""Blocks of rows, the loops of the bodies of attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Dims, Tensor, ints, static

SCORES = 1 << 20  # in a block, where that leaves it as many rows as
ROWS = 64
LESS = 4  # times as few where memory counts more than time

# The sums after a block and the rows that it makes, from the sums before and the block's rows.
Step = Callable[[Sequence[Tensor], Tensor | None], tuple[Sequence[Tensor], Sequence[Tensor]]]


@dataclass(frozen=True)
class Rows:
    """The rows of a matrix of scores [..., S, T], in `count` blocks of `size`.

    The last block may reach beyond the end.  Where a size is open, one block has all rows.
    """

    total: int
    size: int

    @staticmethod
    def of(scores: Dims, times: int = 1) -> Rows:
        """The blocks of scores [..., S, T], `times` as small as they usually are."""
        if not static(scores):
            return Rows(0, 0)
        sizes = ints(scores)
        total = sizes[-2]
        others = math.prod(sizes) // max(total, 1)
        size = max(ROWS // times, SCORES // times // max(others, 1))
        count = math.ceil(total / size)
        even = next((c for c in range(count, 2 * count) if c and total % c == 0), count)
        return Rows(total, math.ceil(total / even) if even else 0)

    @property
    def count(self) -> int:
        """Number of blocks; one where sizes are open."""
        return math.ceil(self.total / self.size) if self.size else 1

    def padded(self, op: Builder, x: Tensor, fill: float | None = None) -> Tensor:
        """`x` [..., S, D], continued with `fill` or zeros to the end of the last block."""
        missing = self.count * self.size - self.total
        if self.count == 1 or missing == 0 or x.shape[-2] == 1:
            return x
        rank = len(x.shape)
        pads = [0] * (2 * rank)
        pads[-2] = missing
        return op.Pad(x, pads, None if fill is None else op.constant(fill, x.dtype))

    def each(self, op: Builder, sums: Sequence[Tensor], step: Step) -> tuple[list[Tensor], ...]:
        """The sums after the last block, and the rows of all: `step(sums, rows of a block)`.

        A Scan, whose body is done with a block before it begins the next: stock onnxruntime runs
        blocks that lie side by side in an order of its own, and holds several.
        """
        if self.count == 1:
            last, rows = step(sums, None)
            return list(last), list(rows)
        places = np.arange(self.count * self.size).reshape(self.count, self.size)
        formal = [op.formal("sum", s.shape, s.dtype) for s in sums]
        at = op.formal("rows", [self.size], op.constant(places).dtype)
        with op.body([*formal, at]) as body:
            later, rows = step(formal, at)
            body.outputs.extend((*later, *rows))
        count = len(sums) + len(rows)
        made = op.Scan(*sums, op.constant(places), body=body, outputs=count, num_scan_inputs=1)
        found = [made] if count == 1 else list(made)
        return found[: len(sums)], [self._joined(op, a) for a in found[len(sums) :]]

    def _joined(self, op: Builder, blocks: Tensor) -> Tensor:
        """[blocks, ..., size, D] → [..., S, D]."""
        _, *lead, _, width = blocks.shape
        rank = len(blocks.shape)
        y = op.transpose(blocks, [*range(1, rank - 2), 0, rank - 2, rank - 1])
        y = op.reshape(y, [*lead, self.count * self.size, width])
        return op.crop(y, [self.total], [rank - 3])


def rows_of(op: Builder, x: Tensor, at: Tensor | None) -> Tensor:
    """The rows of a block of `x` [..., S, D]; all where there is one block, or one row."""
    if at is None or x.shape[-2] == 1:
        return x
    return op.Gather(x, at, axis=len(x.shape) - 2)
