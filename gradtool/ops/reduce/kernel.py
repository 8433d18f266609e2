"""Reductions over any set of axes, and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
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


def _axes(x: Array | Spec, axes: Array | None, noop: int) -> tuple[int, ...]:
    return reduced_axes(len(x.shape), axes, noop)


def _sum_work(
    x: Spec,
    axes: Array | None = None,
    *,
    out: Specs,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> list[Spec]:
    return sum_work(x, _axes(x, axes, noop_with_empty_axes), out[0])


@kernel("ReduceSum", strided=True, host=(1,), work=_sum_work)
def reduce_sum(
    xp: Any,
    x: Array,
    axes: Array | None = None,
    *,
    out: Arrays,
    work: Arrays,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> None:
    """`y = Σ x` over the axes."""
    sum_into(xp, x, _axes(x, axes, noop_with_empty_axes), out[0], work)


@kernel("ReduceMean", strided=True, host=(1,), work=_sum_work)
def reduce_mean(
    xp: Any,
    x: Array,
    axes: Array | None = None,
    *,
    out: Arrays,
    work: Arrays,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> None:
    """`y = Σ x / n`."""
    axes = _axes(x, axes, noop_with_empty_axes)
    count = math.prod(x.shape[a] for a in axes)
    sum_into(xp, x, axes, out[0], work, lambda total: xp.divide(total, count, out=total))


def _extreme(name: str, function: str, empty: int) -> None:
    @kernel(name, strided=True, host=(1,))
    def run(
        xp: Any,
        x: Array,
        axes: Array | None = None,
        *,
        out: Arrays,
        work: Arrays,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> None:
        """The extreme along some axes; of nothing it is `empty`."""
        axes = _axes(x, axes, noop_with_empty_axes)
        if 0 in x.shape:
            out[0].fill(_limit(xp, x.dtype, empty))
        else:
            reduce_into(xp, partial(_into, getattr(xp, function)), x, axes, out[0])


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


@kernel("ReduceProd", strided=True, host=(1,))
def reduce_prod(
    xp: Any,
    x: Array,
    axes: Array | None = None,
    *,
    out: Arrays,
    work: Arrays,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> None:
    """`y = Π x` over the axes."""
    axes = _axes(x, axes, noop_with_empty_axes)
    dtype = out[0].dtype if xp is np else accumulator(out[0].dtype)
    reduce_into(xp, partial(_into, partial(xp.prod, dtype=dtype)), x, axes, out[0])


def _norm(name: str, terms: Callable[..., Any], then: str | None, *, exact: bool) -> None:
    """`y = then(Σ terms(x))`; integers are summed as such if `exact`, else in float64."""

    def wide(x: Spec) -> DType:
        if np.dtype(x.dtype).kind in "iu" and not exact:
            return np.dtype(np.float64)
        return accumulator(x.dtype)

    def work(
        x: Spec,
        axes: Array | None = None,
        *,
        out: Specs,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> list[Spec]:
        return mapped_work(x, _axes(x, axes, noop_with_empty_axes), out[0], wide(x))

    @kernel(name, strided=True, host=(1,), work=work)
    def run(
        xp: Any,
        x: Array,
        axes: Array | None = None,
        *,
        out: Arrays,
        work: Arrays,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> None:
        """The sum of `terms` along some axes, and `then` of that."""
        axes = _axes(x, axes, noop_with_empty_axes)

        def block(index: Index, t: Array) -> None:
            terms(xp, x[index], t)

        total = mapped_sum(xp, x, axes, block, out[0], work)
        if then is not None:
            getattr(xp, then)(total, out=total)
        if len(work) > 2:
            xp.copyto(out[0].reshape(total.shape), total, casting="unsafe")


def _square(xp: Any, x: Array, t: Array) -> None:
    xp.copyto(t, x)
    xp.multiply(t, t, out=t)


_norm("ReduceL1", lambda xp, x, t: xp.absolute(x, out=t), None, exact=True)
_norm("ReduceL2", _square, "sqrt", exact=False)
_norm("ReduceSumSquare", _square, None, exact=True)
_norm("ReduceLogSum", lambda xp, x, t: xp.copyto(t, x), "log", exact=False)


def _log_sum_exp_work(
    x: Spec,
    axes: Array | None = None,
    *,
    out: Specs,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> list[Spec]:
    wide = np.dtype(np.float64) if np.dtype(x.dtype).kind in "iu" else accumulator(x.dtype)
    axes = _axes(x, axes, noop_with_empty_axes)
    return [Spec(out[0].shape, wide), *mapped_work(x, axes, out[0], wide)]


@kernel("ReduceLogSumExp", strided=True, host=(1,), work=_log_sum_exp_work)
def reduce_log_sum_exp(
    xp: Any,
    x: Array,
    axes: Array | None = None,
    *,
    out: Arrays,
    work: Arrays,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> None:
    """`y = m + log Σ exp(x - m)` with m the largest of x, or 0 where that is infinite."""
    axes = _axes(x, axes, noop_with_empty_axes)
    shape = kept(x.shape, axes)
    largest = work[0].reshape(shape)
    if 0 in x.shape:
        largest.fill(0)
    elif axes:
        xp.amax(x, axis=axes, out=out[0].reshape(shape), keepdims=True)
        xp.copyto(largest, out[0].reshape(shape))
    else:
        xp.copyto(largest, x)
    xp.copyto(largest, 0, where=xp.isinf(largest))

    def block(index: Index, t: Array) -> None:
        place = tuple(slice(None) if i in axes else s for i, s in enumerate(index))
        xp.subtract(x[index], largest[place], out=t)
        xp.exp(t, out=t)

    total = mapped_sum(xp, x, axes, block, out[0], work[1:])
    xp.add(xp.log(total, out=total), largest, out=total)
    if len(work) > 3:
        xp.copyto(out[0].reshape(shape), total, casting="unsafe")


def _cumsum_work(
    x: Spec, axis: Array, *, out: Specs, exclusive: int = 0, reverse: int = 0
) -> list[Any]:
    wide = accumulator(x.dtype)
    return [] if wide == out[0].dtype else [Spec(x.shape, wide)]


@kernel("CumSum", strided=True, host=(1,), work=_cumsum_work)
def cumsum(
    xp: Any,
    x: Array,
    axis: Array,
    *,
    out: Arrays,
    work: Arrays,
    exclusive: int = 0,
    reverse: int = 0,
) -> None:
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
