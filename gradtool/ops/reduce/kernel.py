"""Reductions over any set of axes, and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import F, kernel
from gradtool.ops.shared.sums import (
    accumulator,
    kept,
    mapped_sum,
    mapped_work,
    reduce_into,
    reduced_axes,
    sum_into,
    sum_work,
)
from gradtool.ops.shared.types import Array, Arrays, DType, Index, Specs

Work = Callable[[Spec, tuple[int, ...], Spec], list[Spec]]  # of x, the axes, and the result


def reduction(name: str, work: Work | None = None) -> Callable[[F], F]:
    """Register the kernel `function(xp, x, axes, out, work)` of a reduction over some axes."""

    def register(function: F) -> F:
        """Register a kernel whose axes are settled first; returns the function itself."""

        def run(
            xp: Any, x: Array, axes: Array | None = None, *, out: Arrays, work: Arrays,
            noop_with_empty_axes: int = 0, **_: Any,
        ) -> None:  # fmt: skip
            """The reduction over the axes that an operand names."""
            function(xp, x, reduced_axes(x.ndim, axes, noop_with_empty_axes), out[0], work)

        def room(
            x: Spec, axes: Array | None = None, *, out: Specs, noop_with_empty_axes: int = 0,
            **_: Any,
        ) -> list[Spec]:  # fmt: skip
            assert work is not None  # noqa: S101 - else it is not registered
            return work(x, reduced_axes(len(x.shape), axes, noop_with_empty_axes), out[0])

        kernel(name, strided=True, host=(1,), work=None if work is None else room)(run)
        return function

    return register


@reduction("ReduceSum", sum_work)
def reduce_sum(xp: Any, x: Array, axes: tuple[int, ...], out: Array, work: Arrays) -> None:
    """`y = Σ x` over the axes."""
    sum_into(xp, x, axes, out, work)


@reduction("ReduceMean", sum_work)
def reduce_mean(xp: Any, x: Array, axes: tuple[int, ...], out: Array, work: Arrays) -> None:
    """`y = Σ x / n`."""
    count = math.prod(x.shape[a] for a in axes)
    sum_into(xp, x, axes, out, work, lambda total: xp.divide(total, count, out=total))


def _extreme(name: str, function: str, empty: int) -> None:
    @reduction(name)
    def run(xp: Any, x: Array, axes: tuple[int, ...], out: Array, _: Arrays) -> None:
        """The extreme along some axes; of nothing it is `empty`."""
        if 0 in x.shape:
            out.fill(_limit(xp, x.dtype, empty))
        else:
            reduce_into(xp, partial(_into, getattr(xp, function)), x, axes, out)


def _into(reduction: Any, x: Array, *, axis: Sequence[int], out: Array, keepdims: bool) -> None:
    """The reduction in `out`, which CuPy isn't given.

    Its `amin` takes that for a type where CUB reduces, and its `prod` has no bfloat16.
    """
    if isinstance(out, np.ndarray):
        reduction(x, axis=axis, out=out, keepdims=keepdims)
    else:
        out[...] = reduction(x, axis=axis, keepdims=keepdims)


def _limit(xp: Any, dtype: DType, sign: int) -> Any:
    if dtype.kind == "b":
        return sign > 0
    if dtype.kind in "iu":
        return xp.iinfo(dtype).max if sign > 0 else xp.iinfo(dtype).min
    return sign * math.inf


_extreme("ReduceMax", "amax", -1)
_extreme("ReduceMin", "amin", 1)


@reduction("ReduceProd")
def reduce_prod(xp: Any, x: Array, axes: tuple[int, ...], out: Array, _: Arrays) -> None:
    """`y = Π x` over the axes."""
    dtype = out.dtype if xp is np else accumulator(out.dtype)
    reduce_into(xp, partial(_into, partial(xp.prod, dtype=dtype)), x, axes, out)


def _wide(x: Spec, *, exact: bool = False) -> DType:
    """The type in which x is summed: that of integers if `exact`, else float64 for them."""
    if np.dtype(x.dtype).kind in "iu" and not exact:
        return np.dtype(np.float64)
    return accumulator(x.dtype)


def _norm(name: str, terms: Callable[..., Any], then: str | None, *, exact: bool) -> None:
    """`y = then(Σ terms(x))`; integers are summed as such if `exact`."""

    def work(x: Spec, axes: tuple[int, ...], out: Spec) -> list[Spec]:
        return mapped_work(x, axes, out, _wide(x, exact=exact))

    @reduction(name, work)
    def run(xp: Any, x: Array, axes: tuple[int, ...], out: Array, work: Arrays) -> None:
        """The sum of `terms` along some axes, and `then` of that."""

        def block(index: Index, t: Array) -> None:
            terms(xp, x[index], t)

        total = mapped_sum(xp, x, axes, block, out, work)
        if then is not None:
            getattr(xp, then)(total, out=total)
        if len(work) > 2:
            xp.copyto(out.reshape(total.shape), total, casting="unsafe")


def _square(xp: Any, x: Array, t: Array) -> None:
    xp.copyto(t, x)
    xp.multiply(t, t, out=t)


_norm("ReduceL1", lambda xp, x, t: xp.absolute(x, out=t), None, exact=True)
_norm("ReduceL2", _square, "sqrt", exact=False)
_norm("ReduceSumSquare", _square, None, exact=True)
_norm("ReduceLogSum", lambda xp, x, t: xp.copyto(t, x), "log", exact=False)


def _log_sum_exp_work(x: Spec, axes: tuple[int, ...], out: Spec) -> list[Spec]:
    return [Spec(out.shape, _wide(x)), *mapped_work(x, axes, out, _wide(x))]


@reduction("ReduceLogSumExp", _log_sum_exp_work)
def reduce_log_sum_exp(xp: Any, x: Array, axes: tuple[int, ...], out: Array, work: Arrays) -> None:
    """`y = m + log Σ exp(x - m)` with m the largest of x, or 0 if it is infinite."""
    shape = kept(x.shape, axes)
    largest = work[0].reshape(shape)
    if 0 in x.shape:
        largest.fill(0)
    elif axes:
        xp.amax(x, axis=axes, out=out.reshape(shape), keepdims=True)
        xp.copyto(largest, out.reshape(shape))
    else:
        xp.copyto(largest, x)
    xp.copyto(largest, 0, where=xp.isinf(largest))

    def block(index: Index, t: Array) -> None:
        place = tuple(slice(None) if i in axes else s for i, s in enumerate(index))
        xp.subtract(x[index], largest[place], out=t)
        xp.exp(t, out=t)

    total = mapped_sum(xp, x, axes, block, out, work[1:])
    xp.add(xp.log(total, out=total), largest, out=total)
    if len(work) > 3:
        xp.copyto(out.reshape(shape), total, casting="unsafe")


def _cumsum_work(x: Spec, *, out: Specs) -> list[Any]:
    wide = accumulator(x.dtype)
    return [] if wide == out[0].dtype else [Spec(x.shape, wide)]


@kernel("CumSum", strided=True, host=(1,), work=_cumsum_work)
def cumsum(
    xp: Any, x: Array, axis: Array, *,
    out: Arrays, work: Arrays, exclusive: int = 0, reverse: int = 0,
) -> None:  # fmt: skip
    """`yᵢ = x₁ + … + xᵢ` along an axis; without xᵢ if `exclusive`, from the end if `reverse`."""
    total = work[0] if work else out[0]
    axis = int(axis.flat[0]) % x.ndim
    x, y = xp.moveaxis(x, axis, 0), xp.moveaxis(total, axis, 0)
    if reverse:
        x, y = x[::-1], y[::-1]
    if exclusive:
        y[:1].fill(0)
        x, y = x[:-1], y[1:]
    xp.cumsum(x, axis=0, out=y, dtype=y.dtype)
    if work:
        xp.copyto(out[0], total, casting="unsafe")
