"""Programs of elementwise operators, run in one pass over blocks in cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from gradtool.native import SLOTS, strided
from gradtool.native.call import Array, Call, Signature

ELEMENTWISE = Signature(
    "elementwise",
    "code operands results work",
    "count steps inputs outputs spares temporaries slots",
    tables=("operands", "results"),
)
BLOCK, BLOCKS = 1024, 16  # elements, and blocks of a chunk
REGISTERS = 64
BINARY = (
    *("add", "sub", "mul", "div", "min", "max"),
    *("relu_grad", "sigmoid_grad", "tanh_grad", "gelu_grad", "gelu_tanh_grad", "silu_grad"),
    *("hard_swish_grad", "pow", "greater", "equal", "both", "but", "either"),
)
UNARY = (
    *("neg", "abs", "sqrt", "exp", "log", "tanh", "sigmoid", "erf", "relu"),
    *("gelu", "gelu_tanh", "silu", "hard_swish", "fall", "softplus", "sign", "inverse", "not"),
)
OPERATORS = (*BINARY, *UNARY)  # in the order of native/kernels/elementwise.c
Step = tuple[str, int, int] | tuple[str, int, int, int]


def temporaries(code: Sequence[Step], inputs: int, outputs: int) -> int:
    """The number of registers of a program that are neither inputs nor outputs."""
    return max(0, *(step[1] + 1 for step in code)) - inputs - outputs if code else 0


def work(code: Sequence[Step], inputs: int, held: int, count: int, outputs: int = 1) -> int:
    """Bytes of workspace of a program whose results have `count` elements.

    `held` counts the inputs that do not lie as the results do, and the booleans in and out.
    """
    block = min(BLOCK, -(-count // 16) * 16)
    slots = min(SLOTS, -(-count // (BLOCK * BLOCKS)))
    return 4 * slots * block * (held + max(0, temporaries(code, inputs, outputs)))


@cache
def _words(code: tuple[Step, ...]) -> Array:
    """A program as the library reads it."""
    words = [(OPERATORS.index(step[0]), *step[1:], step[-1])[:4] for step in code]
    return np.array(words, np.int32).reshape(-1, 4)


def run(
    code: Sequence[Step], inputs: Sequence[Array], outputs: Sequence[Array], work: Array
) -> Call:
    """The call of a program of steps `(operator, to, a)` or `(operator, to, a, b)`.

    Registers are the inputs, the outputs, then temporaries, in this order.  Outputs have one
    shape, have no gaps and lie alike; inputs are broadcast to it, and lie as they may.  An output
    may be an input that lies as it does and that no later step reads.  Booleans are masks in
    registers: `greater` and `equal` give them, `both`, `but`, `either` and `not` take them.

    Raises:
        ValueError: there are too many registers, or an input has too many axes.
    """
    held = temporaries(code, len(inputs), len(outputs))
    if len(inputs) + len(outputs) + held > REGISTERS:
        raise ValueError(f"a program has at most {REGISTERS} registers")
    if any(each.dtype not in (np.float32, np.bool_) for each in (*inputs, *outputs)):
        raise TypeError("an operand is neither float32 nor bool")
    if not all(each.flags.c_contiguous for each in outputs):
        axes = strided.order(outputs[0])
        if not all(each.transpose(axes).flags.c_contiguous for each in outputs):
            raise TypeError("a result has gaps")
    operands = [strided.operand(each, outputs[0]) for each in inputs]
    found = ELEMENTWISE.bind(
        code=_words(tuple(code)),
        operands=np.array(operands, np.int64).reshape(-1, 3 + 2 * strided.AXES),
        results=np.array([(y.ctypes.data, y.dtype == np.bool_) for y in outputs], np.int64),
        work=work, count=outputs[0].size, steps=len(code), inputs=len(inputs),
        outputs=len(outputs), temporaries=held,
        spares=sum(map(strided.is_held, operands)) + sum(y.dtype == np.bool_ for y in outputs),
    )  # fmt: skip
    found.operands = (tuple(inputs), tuple(outputs))
    return found


def unary(name: str, x: Array, y: Array) -> Call:
    """`y = f(x)`."""
    return run([(name, 1, 0)], [x], [y], np.empty(0, np.float32))


def binary(name: str, a: Array, b: Array, y: Array) -> Call:
    """`y = f(a, b)` of one shape, as the gradient of an activation by its value or argument."""
    return run([(name, 2, 0, 1)], [a, b], [y], np.empty(0, np.float32))
