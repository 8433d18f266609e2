"""Arithmetic, comparison, logic and conversions, element by element, broadcast as by numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.formulas import OPERATIONS
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.blocks import aligned, block_size
from gradtool.ops.shared.select import INTEGERS, choose
from gradtool.ops.shared.sums import blocks, largest_block
from gradtool.ops.shared.types import Array, Arrays, DType, Specs


def _unary(name: str, ufunc: str) -> None:
    @kernel(name, may_inplace=(0,), strided=True)
    def run(xp: Any, x: Array, *, out: Arrays) -> None:
        getattr(xp, ufunc)(x, out=out[0])


def _binary(name: str, ufunc: str) -> None:
    @kernel(name, may_inplace=(0, 1), strided=True)
    def run(xp: Any, a: Array, b: Array, *, out: Arrays) -> None:
        getattr(xp, ufunc)(a, b, out=out[0])


for _name, _operation in OPERATIONS.items():
    (_unary if _operation.inputs == 1 else _binary)(_name, _operation.ufunc)


def _is_float(array: Array | Spec) -> bool:
    return array.dtype.kind not in "iub"


def _div_work(*, out: Specs) -> list[Spec]:
    return [] if _is_float(out[0]) else [out[0]]


@kernel("Div", may_inplace=(0, 1), strided=True, work=_div_work)
def div(xp: Any, a: Array, b: Array, *, out: Arrays, work: Arrays) -> None:
    """`a / b`; integers truncate toward zero: `(a - fmod(a, b)) / b`, as in C."""
    if _is_float(out[0]):
        xp.divide(a, b, out=out[0])
    else:
        xp.fmod(a, b, out=work[0])
        xp.subtract(a, work[0], out=work[0])
        xp.floor_divide(work[0], b, out=out[0])


@kernel("Mod", may_inplace=(0, 1), strided=True)
def mod(xp: Any, a: Array, b: Array, *, out: Arrays, fmod: int = 0) -> None:
    """The remainder of `a / b`, of the sign of b, or of a with `fmod`."""
    (xp.fmod if fmod else xp.remainder)(a, b, out=out[0])


@kernel("Reciprocal", may_inplace=(0,), strided=True)
def reciprocal(xp: Any, x: Array, *, out: Arrays) -> None:
    xp.divide(x.dtype.type(1), x, out=out[0])


@kernel("Pow", may_inplace=(0,), strided=True)
def power(xp: Any, x: Array, exponent: Array, *, out: Arrays) -> None:
    """`x ** exponent` in the type of x, which may differ from the exponent's."""
    from gradtool.ops.elementwise.kernel_grad import raise_to

    raise_to(xp, x, exponent, out[0])


@kernel("IsInf", strided=True)
def is_inf(
    xp: Any, x: Array, *, out: Arrays, detect_negative: int = 1, detect_positive: int = 1
) -> None:
    """Mask of the infinities of x, of the signs asked for."""
    if detect_negative and detect_positive:
        xp.isinf(x, out=out[0])
    elif detect_negative or detect_positive:
        xp.equal(x, x.dtype.type(-np.inf if detect_negative else np.inf), out=out[0])
    else:
        out[0].fill(False)


@kernel("BitShift", may_inplace=(0, 1), strided=True)
def bit_shift(xp: Any, x: Array, y: Array, *, out: Arrays, direction: str) -> None:
    (xp.left_shift if direction == "LEFT" else xp.right_shift)(x, y, out=out[0])


def _fold(xp: Any, ufunc: Any, inputs: Sequence[Array | float], y: Array) -> None:
    """`y` is the inputs combined from the left; only the first one may be y itself."""
    first, *rest = inputs
    if not rest:
        xp.copyto(y, first)
        return
    ufunc(first, rest[0], out=y)
    for value in rest[1:]:
        ufunc(y, value, out=y)


def _nary(name: str, ufunc: str) -> None:
    @kernel(name, may_inplace=(0, 1), strided=True)
    def run(xp: Any, *inputs: Array, out: Arrays) -> None:
        _fold(xp, getattr(xp, ufunc), inputs, out[0])


for _name, _ufunc in {"Sum": "add", "Max": "maximum", "Min": "minimum"}.items():
    _nary(_name, _ufunc)


@kernel("Mean", may_inplace=(0, 1), strided=True)
def mean(xp: Any, *inputs: Array, out: Arrays) -> None:
    """`(x₁ + … + xₙ) / n`."""
    _fold(xp, xp.add, inputs, out[0])
    xp.divide(out[0], out[0].dtype.type(len(inputs)), out=out[0])


@kernel("Clip", may_inplace=(0,), strided=True)
def clip(
    xp: Any, x: Array, low: Array | None = None, high: Array | None = None, *, out: Arrays
) -> None:
    """`min(max(x, low), high)`."""
    if low is not None:
        x = xp.maximum(x, low, out=out[0])
    if high is not None:
        xp.minimum(x, high, out=out[0])
    elif low is None:
        xp.copyto(out[0], x)


def _where_work(condition: Spec, a: Spec, b: Spec, *, out: Specs) -> list[Spec]:
    size = block_size(out[0].shape, (condition, a, b))
    flat = Spec((size,), out[0].dtype)
    return [flat, flat, Spec((size,), np.dtype(bool))]


@kernel("Where", may_inplace=(1, 2), strided=True, work=_where_work)
def where(xp: Any, condition: Array, a: Array, b: Array, *, out: Arrays, work: Arrays) -> None:
    y = out[0]
    for part, (mask, left, right) in aligned(xp, y, (condition, a, b)):
        t, s, own = (w[w.size - part.size :].reshape(part.shape) for w in work)
        xp.copyto(own, mask)
        if y.dtype.itemsize in INTEGERS and y.dtype.kind != "O":
            choose(xp, own, left, right, part, t, s)
        else:
            xp.copyto(t, right)
            xp.copyto(t, left, where=own)
            xp.copyto(part, t)


def _same(xp: Any, x: Array) -> Array:
    return x


@kernel("Identity", strided=True, view=lambda x, strides: [(0, strides)], dynamic=_same)
def identity(xp: Any, x: Array, *, out: Arrays) -> None:
    xp.copyto(out[0], x)


def _float8(dtype: DType) -> bool:
    return np.dtype(dtype).name.startswith("float8")


def _work(x: Spec, *, out: Specs) -> list[Spec]:
    narrows = _float8(out[0].dtype)
    return [Spec((largest_block(x.shape),), np.dtype(np.float32))] if narrows else []


def _convert(xp: Any, x: Array, y: Array, work: Arrays, saturate: int, round_mode: str) -> None:
    """`y = x` in the type of y; with `saturate`, eight-bit floats stop at their largest number."""
    if not _float8(y.dtype):
        xp.copyto(y, x, casting="unsafe")
        return
    for index in blocks(y.shape):
        wide = work[0][: y[index].size].reshape(y[index].shape)
        xp.copyto(wide, x[index], casting="unsafe")
        if y.dtype.name == "float8_e8m0fnu":
            _exponents(xp, wide, y[index], saturate, round_mode)
            continue
        if saturate:
            largest = _largest(y.dtype)
            xp.clip(wide, -largest, largest, out=wide)
        xp.copyto(y[index], wide, casting="unsafe")


def _exponents(xp: Any, wide: Array, y: Array, saturate: Array, round_mode: Array) -> None:
    from onnx.numpy_helper import to_float8e8m0

    made = to_float8e8m0(wide, saturate=bool(saturate), round_mode=round_mode)
    xp.copyto(y, made)


def _largest(dtype: DType) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)


@kernel("Cast", strided=True, work=_work)
def cast(
    xp: Any, x: Array, *,
    out: Arrays, work: Arrays, to: int, saturate: int = 1, round_mode: str = "up",
) -> None:  # fmt: skip
    _convert(xp, x, out[0], work, saturate, round_mode)


@kernel("CastLike", strided=True, work=_work)
def cast_like(
    xp: Any, x: Array, like: Array, *,
    out: Arrays, work: Arrays, saturate: int = 1, round_mode: str = "up",
) -> None:  # fmt: skip
    _convert(xp, x, out[0], work, saturate, round_mode)
