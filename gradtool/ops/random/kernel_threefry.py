"""Masks of Dropout by Threefry, a block that stays in cache at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.operators.threefry import BETWEEN, BITS, MASK, PARITY, ROTATIONS, ROUNDS
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.sums import BLOCK
from gradtool.ops.shared.types import Array, Arrays, Specs

WORD = np.dtype(np.uint32)


def _work(*, out: Specs) -> Specs:
    size = min(at_a_time(BLOCK), math.prod(out[0].shape))
    return [Spec((size,), WORD)] * 3


@kernel("ai.gradtool::DropoutMask", host=(0, 1, 2, 3, 4), work=_work)
def dropout_mask(
    xp: Any,
    shape: Array,
    ratio: Array,
    seed: Array,
    step: Array,
    part: Array,
    *,
    out: Arrays,
    work: Arrays,
    stream: int,
) -> None:
    """Keep mask of Dropout: false where the word of an element is less than `ratio · 2³²`."""
    mask = out[0].reshape(-1)
    bound = int(float(ratio.item()) * (1 << BITS))
    if not 0 < bound <= MASK:
        mask.fill(bound <= 0)
        return
    key = int(seed.item()) & MASK, stream & MASK
    counter, first = int(step.item()) & MASK, int(part.item()) * mask.size
    size = at_a_time(BLOCK)
    for start in range(0, mask.size, size):
        block = mask[start : start + size]
        a, b, spare = (w[: block.size] for w in work)
        spare.fill(1)
        xp.cumsum(spare, dtype=WORD, out=a)
        a += WORD.type((first + start - 1) & MASK)
        b.fill(counter)
        threefry(xp, key, a, b, spare)
        xp.greater_equal(a, WORD.type(bound), out=block)


def threefry(xp: Any, key: tuple[int, int], a: Array, b: Array, spare: Array) -> None:
    """Replace counters `(a, b)` by their two words, in place."""
    keys = (*key, key[0] ^ key[1] ^ PARITY)
    a += WORD.type(keys[0])
    b += WORD.type(keys[1])
    for turn in range(ROUNDS):
        by = ROTATIONS[turn % len(ROTATIONS)]
        a += b
        xp.left_shift(b, WORD.type(by), out=spare)
        xp.right_shift(b, WORD.type(BITS - by), out=b)
        b |= spare
        b ^= a
        if (turn + 1) % BETWEEN == 0:
            times = (turn + 1) // BETWEEN
            a += WORD.type(keys[times % 3])
            b += WORD.type((keys[(times + 1) % 3] + times) & MASK)
