"""Programs of elementwise operators, run in one pass over blocks that stay in cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtool.native import SLOTS
from gradtool.native.call import Array, Call, Signature

ELEMENTWISE = Signature(
    "elementwise",
    "code operands results work",
    "count steps inputs outputs spares temporaries slots",
)
BLOCK = 1024  # elements
REGISTERS = 64
BINARY = (
    *("add", "sub", "mul", "div", "min", "max"),
    *("relu_grad", "sigmoid_grad", "tanh_grad", "gelu_grad", "gelu_tanh_grad", "silu_grad"),
)
UNARY = (
    *("neg", "abs", "sqrt", "exp", "log", "tanh", "sigmoid", "erf", "relu"),
    *("gelu", "gelu_tanh", "silu"),
)
OPERATORS = (*BINARY, *UNARY)  # in the order of native/kernels/elementwise.c
Step = tuple[str, int, int] | tuple[str, int, int, int]


def temporaries(code: Sequence[Step], inputs: int, outputs: int) -> int:
    """How many registers of a program are neither inputs nor outputs."""
    return max(0, *(step[1] + 1 for step in code)) - inputs - outputs if code else 0


def work(code: Sequence[Step], shapes: Sequence[tuple[int, ...]], shape: tuple[int, ...],
         outputs: int = 1) -> int:  # fmt: skip
    """Bytes of workspace of a program on inputs of `shapes`, with results of `shape`."""
    held = sum(1 for each in shapes if pattern(each, shape)[1])
    return 4 * SLOTS * BLOCK * (held + max(0, temporaries(code, len(shapes), outputs)))


def pattern(shape: tuple[int, ...], whole: tuple[int, ...]) -> tuple[int, int]:
    """`(repeat, period)` of an array of `shape` that is broadcast to `whole`; (1, 0) if it is not.

    Raises:
        ValueError: its axes larger than one do not lie beside each other.
    """
    shape = (1,) * (len(whole) - len(shape)) + tuple(shape)
    if shape == tuple(whole):
        return 1, 0
    kept = [axis for axis, (n, m) in enumerate(zip(shape, whole, strict=True)) if n == m != 1]
    if any(n not in (1, m) for n, m in zip(shape, whole, strict=True)):
        raise ValueError(f"{shape} cannot be broadcast to {whole}")
    if not kept:
        return 1, 1
    first, last = kept[0], kept[-1] + 1
    if shape[first:last] != tuple(whole[first:last]):
        raise ValueError(f"no single stride broadcasts {shape} to {whole}")
    return int(np.prod(whole[last:], dtype=int)), int(np.prod(shape[first:last], dtype=int))


def run(
    code: Sequence[Step], inputs: Sequence[Array], outputs: Sequence[Array], work: Array, *,
    instructions: str | None = None,
) -> Call:  # fmt: skip
    """The call of a program of steps `(operator, to, a)` or `(operator, to, a, b)`.

    Registers are the inputs, the outputs, then temporaries, in this order.  Outputs have one
    shape; inputs are broadcast to it.  An output may be an input that no later step reads.
    """
    shape = outputs[0].shape
    held = temporaries(code, len(inputs), len(outputs))
    if len(inputs) + len(outputs) + held > REGISTERS:
        raise ValueError(f"a program has at most {REGISTERS} registers")
    for each in (*inputs, *outputs):
        if not each.flags.c_contiguous or each.dtype != np.float32:
            raise TypeError("an operand is not contiguous float32")
    words = [(OPERATORS.index(step[0]), *step[1:], step[-1])[:4] for step in code]
    patterns = [pattern(each.shape, shape) for each in inputs]
    found = ELEMENTWISE.bind(
        instructions,
        code=np.array(words, np.int32).reshape(-1, 4),
        operands=np.array(
            [(a.ctypes.data, *p) for a, p in zip(inputs, patterns, strict=True)], np.int64
        ).reshape(-1, 3),
        results=np.array([each.ctypes.data for each in outputs], np.int64),
        work=work, count=outputs[0].size, steps=len(words), inputs=len(inputs),
        outputs=len(outputs), spares=sum(1 for _, period in patterns if period), temporaries=held,
        slots=SLOTS,
    )  # fmt: skip
    found.operands = (tuple(inputs), tuple(outputs))  # type: ignore[attr-defined]
    return found


def unary(name: str, x: Array, y: Array, *, instructions: str | None = None) -> Call:
    """`y = f(x)`."""
    return run([(name, 1, 0)], [x], [y], np.empty(0, np.float32), instructions=instructions)


def binary(name: str, a: Array, b: Array, y: Array, *, instructions: str | None = None) -> Call:
    """`y = f(a, b)` of one shape, as the gradient of an activation by its value or argument."""
    return run([(name, 2, 0, 1)], [a, b], [y], np.empty(0, np.float32), instructions=instructions)
