"""Threefry in standard operators: words of 32 bits, each held in an int64."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor
from gradtool.operators.threefry import BETWEEN, BITS, MASK, PARITY, ROTATIONS, ROUNDS
from gradtool.ops.shared.scatter import count, positions
from gradtool.ops.shared.symbolic_sizes import dims

INT64, DOUBLE = ir.DataType.INT64, ir.DataType.DOUBLE


def _shape(shape: Tensor) -> Outputs:
    return [(dims(shape), ir.DataType.BOOL)]


@composite("DropoutMask", shapes=_shape)
def dropout_mask(
    op: Builder, shape: Tensor, ratio: Tensor, seed: Tensor, step: Tensor, part: Tensor, *,
    stream: int,
) -> Tensor:  # fmt: skip
    """Keep mask of Dropout: false with the probability `ratio`, cut to a multiple of 2⁻³².

    The word of element i of n is the first of Threefry with the key `(seed, stream)` and the
    counter `(part · n + i, step)`, each modulo 2³².
    """
    first = count(op, shape) * part
    words = threefry(
        op, _low(op, seed), stream & MASK, _low(op, positions(op, shape) + first), _low(op, step)
    )
    bound = op.cast(op.cast(ratio, DOUBLE) * float(1 << BITS), INT64)
    return op.GreaterOrEqual(words[0], bound)


def threefry(
    op: Builder, seed: Tensor, stream: int, first: Tensor, second: Tensor
) -> tuple[Tensor, Tensor]:
    """Two words for the key `(seed, stream)` and the counter `(first, second)`."""
    keys = (seed, op.constant(stream, INT64), op.BitwiseXor(seed, (stream ^ PARITY) & MASK))
    a, b = _low(op, first + keys[0]), _low(op, second + keys[1])
    for turn in range(ROUNDS):
        a = _low(op, a + b)
        b = op.BitwiseXor(_turned(op, b, ROTATIONS[turn % len(ROTATIONS)]), a)
        if (turn + 1) % BETWEEN == 0:
            times = (turn + 1) // BETWEEN
            a = _low(op, a + keys[times % 3])
            b = _low(op, b + (keys[(times + 1) % 3] + times))
    return a, b


def _turned(op: Builder, word: Tensor, by: int) -> Tensor:
    """A word rotated to the left; the top of 32 bits comes in at the bottom."""
    wide = word * (1 << by)
    return _low(op, wide) + op.Div(wide, 1 << BITS)


def _low(op: Builder, word: Tensor) -> Tensor:
    return op.BitwiseAnd(word, MASK)
