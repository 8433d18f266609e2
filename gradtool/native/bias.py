"""Activations of `x + bias` on rows, and their gradients with that of the bias, in one pass."""

from __future__ import annotations

import math

from gradtool.native import SLOTS, elementwise
from gradtool.native.batch_norm import LEAST, PARTS
from gradtool.native.call import Array, Call, Signature

BIAS_GRAD = Signature("bias_grad", "x bias dy dx dbias work", "rows n function slots")
FUNCTIONS = ("gelu", "gelu_tanh", "silu", "relu")  # in the order of native/kernels/bias_grad.c


def _code(name: str) -> list[elementwise.Step]:
    return [("add", 3, 0, 1), (name, 2, 3)]


def work(shape: tuple[int, ...]) -> int:
    """Bytes of workspace of `bias` for x of `shape`."""
    return elementwise.work(_code("gelu"), inputs=2, held=1, count=math.prod(shape))


def grad_work(shape: tuple[int, ...]) -> int:
    """Bytes of workspace of `bias_grad`: sums of each part of the rows."""
    rows, n = _sizes(shape)
    part = max(-(-rows // PARTS), -(-LEAST // max(n, 1)))
    return 4 * (-(-n // 16) * 16) * -(-rows // part)


def _sizes(shape: tuple[int, ...]) -> tuple[int, int]:
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows, shape[-1]


def bias(
    name: str, x: Array, bias: Array, y: Array, work: Array, *, instructions: str | None = None
) -> Call:
    """`y = f(x + bias)`, the bias being along the last axis; f is one of `elementwise.UNARY`."""
    return elementwise.run(_code(name), [x, bias], [y], work, instructions=instructions)


def bias_grad(
    name: str, x: Array, bias: Array, dy: Array, dx: Array | None, dbias: Array | None,
    work: Array, *, instructions: str | None = None,
) -> Call:  # fmt: skip
    """`dx = f'(x + bias) · dy` and `dbias`, its sum over rows; f is one of `FUNCTIONS`."""
    rows, n = _sizes(x.shape)
    return BIAS_GRAD.bind(
        instructions, x=x, bias=bias, dy=dy, dx=dx, dbias=dbias, work=work, rows=rows, n=n,
        function=FUNCTIONS.index(name), slots=SLOTS,
    )  # fmt: skip
