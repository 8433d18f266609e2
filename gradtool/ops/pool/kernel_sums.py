"""Pooling by sums: averages and p-norms, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.pool.kernel_windows import Pool, add_windows, divide_by_counts, planes, rows
from gradtool.ops.shared.types import Array, Arrays, DType, Specs


def _average_work(x: Spec, *, out: Specs, **attributes: Any) -> list[Spec]:
    pool = Pool.of(x, out[0], attributes)
    return [pool.block() if pool.wide != pool.dtype else Spec((0,), pool.wide)]


@kernel("AveragePool", work=_average_work)
def average_pool(
    xp: Any, x: Array, *, out: Arrays, work: Arrays, count_include_pad: int = 0, **attributes: Any
) -> None:
    """The mean of each window over its elements in x, or in x and its padding."""
    pool = Pool.of(x, out[0], attributes, mean=True)
    counts = pool.counts(include_pad=bool(count_include_pad))
    taps, source, target = list(pool.taps()), planes(x), planes(out[0])
    for span in pool.blocks():
        part = source[span]
        made = work[0][: part.shape[0]] if work[0].size else target[span]
        add_windows(xp, taps, part, made)
        divide_by_counts(xp, pool, made, counts)
        if work[0].size:
            xp.copyto(target[span], made, casting="unsafe")


def _average_grad_work(dy: Spec, *, out: Specs, **attributes: Any) -> list[Spec]:
    pool = Pool.of(out[0], dy, attributes)
    image = pool.image() if pool.wide != pool.dtype else Spec((0,), pool.wide)
    return [pool.block(), image]


@kernel("ai.gradtool::AveragePoolGrad", host=(1,), work=_average_grad_work)
def average_pool_grad(
    xp: Any, dy: Array, _: Array, *,
    out: Arrays, work: Arrays, count_include_pad: int, **attributes: Any,
) -> None:  # fmt: skip
    """Each window's gradient, divided by its count, added where the window lay."""
    pool = Pool.of(out[0], dy, attributes)
    counts = pool.counts(include_pad=bool(count_include_pad))
    taps, source, target = list(pool.taps()), planes(dy), planes(out[0])
    for span in pool.blocks():
        part = work[0][: span.stop - span.start]
        xp.copyto(part, source[span])
        divide_by_counts(xp, pool, part, counts)
        made = work[1][: part.shape[0]] if work[1].size else target[span]
        add_windows(xp, taps, part, made, back=True)
        if work[1].size:
            xp.copyto(target[span], made, casting="unsafe")


# ------------------------------------------------------------------------------- p-norms


def _power(xp: Any, x: Array, p: int, out: Array) -> None:
    """`out = |x|^p`."""
    xp.absolute(x, out=out)
    if p == 2:
        xp.multiply(out, out, out=out)
    elif p != 1:
        xp.power(out, p, out=out)


def _root(xp: Any, x: Array, p: int) -> None:
    """`x = x^(1/p)`."""
    if p == 2:
        xp.sqrt(x, out=x)
    elif p != 1:
        xp.power(x, 1 / p, out=x)


def _lp_work(x: Spec, *, out: Specs, **attributes: Any) -> list[Spec]:
    pool = Pool.of(x, out[0], attributes)
    return [pool.image(), pool.block()]


@kernel("LpPool", work=_lp_work)
def lp_pool(xp: Any, x: Array, *, out: Arrays, work: Arrays, p: int = 2, **attributes: Any) -> None:
    """`y = (Σ |x|^p)^(1/p)` over each window."""
    pool = Pool.of(x, out[0], attributes)
    taps, source, target = list(pool.taps()), planes(x), planes(out[0])
    for span in pool.blocks():
        powers, sums = (w[: span.stop - span.start] for w in work)
        _power(xp, source[span], p, powers)
        add_windows(xp, taps, powers, sums)
        _root(xp, sums, p)
        xp.copyto(target[span], sums, casting="unsafe")


def _shares(xp: Any, y: Array, dy: Array, p: int, out: Array, zero: Array) -> None:
    """`out = dy · y^(1 - p)`, 0 where y is 0."""
    xp.equal(y, 0, out=zero)
    xp.copyto(out, y)
    xp.copyto(out, 1, where=zero)
    xp.power(out, 1 - p, out=out)
    xp.multiply(out, dy, out=out)
    xp.copyto(out, 0, where=zero)


def _slopes(xp: Any, x: Array, p: int, out: Array) -> None:
    """`out = sign(x) · |x|^(p - 1)`."""
    xp.absolute(x, out=out)
    xp.power(out, p - 1, out=out)
    xp.copysign(out, x, out=out)
    if p == 1:
        xp.sign(x, out=out)


def _lp_grad_work(x: Spec, y: Spec, dy: Spec, **attributes: Any) -> list[Spec]:
    pool = Pool.of(x, dy, attributes)
    return [pool.image(), pool.image(), pool.block(), pool.block(bool)]


@kernel("ai.gradtool::LpPoolGrad", work=_lp_grad_work)
def lp_pool_grad(
    xp: Any, x: Array, y: Array, dy: Array, *, out: Arrays, work: Arrays, p: int, **attributes: Any
) -> None:
    """The gradient of LpPool: dy · sign(x) · (|x| / y)^(p − 1), summed over windows."""
    pool = Pool.of(x, dy, attributes)
    taps, flat = list(pool.taps()), [planes(v) for v in (x, y, dy, out[0])]
    for span in pool.blocks():
        source, result, given, target = (v[span] for v in flat)
        slopes, sums, shares, zero = (w[: span.stop - span.start] for w in work)
        _shares(xp, result, given, p, shares, zero)
        add_windows(xp, taps, shares, sums, back=True)
        _slopes(xp, source, p, slopes)
        xp.multiply(slopes, sums, out=target, casting="unsafe")


def _wide(x: Spec) -> DType:
    return x.dtype if x.dtype.itemsize > 2 else np.dtype(np.float32)


@kernel("GlobalLpPool", work=lambda x: [
    Spec((math.prod(x.shape[2:]),), _wide(x)), Spec((x.shape[0] * x.shape[1],), _wide(x)),
])  # fmt: skip
def global_lp_pool(xp: Any, x: Array, *, out: Arrays, work: Arrays, p: int = 2) -> None:
    """`y = (Σ |x|^p)^(1/p)` over each plane."""
    powers, sums = work
    for index, row in enumerate(rows(x)):
        _power(xp, row, p, powers)
        xp.sum(powers, out=sums[index : index + 1].reshape(()))
    _root(xp, sums, p)
    xp.copyto(out[0].reshape(-1), sums, casting="unsafe")


@kernel("ai.gradtool::GlobalLpPoolGrad", work=lambda x: [
    Spec((math.prod(x.shape[2:]),), _wide(x)), Spec((x.shape[0] * x.shape[1],), _wide(x)),
    Spec((x.shape[0] * x.shape[1],), np.dtype(bool)),
])  # fmt: skip
def global_lp_pool_grad(
    xp: Any, x: Array, y: Array, dy: Array, *, out: Arrays, work: Arrays, p: int
) -> None:
    slopes, shares, zero = work
    _shares(xp, y.reshape(-1), dy.reshape(-1), p, shares, zero)
    for index, (row, target) in enumerate(zip(rows(x), rows(out[0]), strict=True)):
        _slopes(xp, row, p, slopes)
        xp.multiply(slopes, shares[index], out=target, casting="unsafe")
