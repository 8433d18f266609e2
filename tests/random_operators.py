"""What `random_graphs` draws: per operator, which arrays it may be put on, and how it is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from random_graphs import KINK, MOST_ELEMENTS, Array, Draft

Maker = Callable[[Draft, str], Any]
Fits = Callable[[Array], bool]
MAKERS: list[tuple[Maker, Fits]] = []


def maker(fits: Fits) -> Callable[[Maker], Maker]:
    def register(make: Maker) -> Maker:
        MAKERS.append((make, fits))
        return make

    return register


def always(_: Array) -> bool:
    return True


def away_from(*points: float) -> Fits:
    return lambda x: all(np.abs(x - p).min(initial=1.0) > KINK for p in points)


def ranked(low: int, high: int = 9) -> Fits:
    return lambda x: low <= x.ndim <= high


def apart(x: Array) -> bool:
    """Whether no two elements are nearly equal, so that the largest of any of them is clear."""
    return bool(np.diff(np.sort(x, axis=None)).min(initial=1.0) > KINK)


def unary(op: str, fits: Fits = always, **attributes: Any) -> None:
    MAKERS.append((lambda d, x: d.emit(op, x, **attributes), fits))


for name in ("Tanh", "Sigmoid", "Softplus", "Erf", "Sin", "Cos", "Neg", "Mish", "Gelu", "Identity"):
    unary(name)
unary("Gelu", approximate="tanh")
unary("Exp", lambda x: x.max(initial=0.0) < 2.0)
unary("Log", lambda x: x.min(initial=1.0) > 0.1)
unary("Sqrt", lambda x: x.min(initial=1.0) > 0.1)
unary("Reciprocal", lambda x: np.abs(x).min(initial=1.0) > 0.2)
for name in ("Relu", "Abs", "Elu", "Selu", "Softsign"):
    unary(name, away_from(0.0))
unary("LeakyRelu", away_from(0.0), alpha=0.25)
unary("HardSwish", away_from(-3.0, 3.0))


@maker(away_from(-1.0, 0.75))
def clip(d: Draft, x: str) -> None:
    d.emit("Clip", x, d.constant(np.float64(-1.0)), d.constant(np.float64(0.75)))


# ------------------------------------------------------------------------- elementwise


def partner(d: Draft, x: str, low: float = -1.5, high: float = 1.5) -> str:
    """A value that broadcasts with `x`: one drawn before, or a new weight."""
    shape = d.arrays[x].shape
    known = [n for n in d.floats if _broadcasts(shape, d.arrays[n].shape)]
    known = [
        n
        for n in known
        if low <= d.arrays[n].min(initial=low) and d.arrays[n].max(initial=high) <= high
    ]
    if known and d.flag():
        return d.choose(known)
    kept = shape[len(shape) - d.draw_int(0, len(shape)) :] if shape else ()
    sizes = [1 if d.draw_int(0, 3) == 0 else s for s in kept]
    if d.draw_int(0, 5) == 0 and len(sizes) < 4 and math.prod(shape) < MOST_ELEMENTS // 2:
        sizes = [2, *(1,) * (len(shape) - len(sizes)), *sizes][-5:]
    return d.weight(*sizes, low=low, high=high)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return math.prod(np.broadcast_shapes(a, b)) <= MOST_ELEMENTS
    except ValueError:
        return False


def binary(op: str, d: Draft, x: str, y: str) -> None:
    d.emit(op, *((x, y) if d.flag() else (y, x)))


@maker(always)
def add(d: Draft, x: str) -> None:
    binary(d.choose(["Add", "Sub", "Mul"]), d, x, partner(d, x))


@maker(always)
def twice(d: Draft, x: str) -> None:
    d.emit(d.choose(["Add", "Mul"]), x, x)


@maker(always)
def div(d: Draft, x: str) -> None:
    d.emit("Div", x, partner(d, x, 0.4, 3.0))


@maker(lambda x: x.min(initial=1.0) > 0.2)
def power(d: Draft, x: str) -> None:
    d.emit("Pow", x, partner(d, x))


@maker(always)
def square(d: Draft, x: str) -> None:
    d.emit("Pow", x, d.constant(np.float64(d.choose([2.0, 3.0]))))


@maker(always)
def extreme(d: Draft, x: str) -> None:
    y = partner(d, x)
    if np.abs(d.arrays[x] - d.arrays[y]).min(initial=1.0) > KINK:
        binary(d.choose(["Max", "Min"]), d, x, y)


@maker(always)
def several(d: Draft, x: str) -> None:
    d.emit(d.choose(["Sum", "Mean"]), x, partner(d, x), *([x] if d.flag() else []))


@maker(always)
def where(d: Draft, x: str) -> None:
    y = partner(d, x)
    shape = np.broadcast_shapes(d.arrays[x].shape, d.arrays[y].shape)
    d.emit("Where", d.constant(d.rng.uniform(size=shape) > 0.5), x, y)


@maker(ranked(2))
def prelu(d: Draft, x: str) -> None:
    if np.abs(d.arrays[x]).min(initial=1.0) > KINK:
        d.emit("PRelu", x, d.weight(d.arrays[x].shape[-1]))


# ------------------------------------------------------------------------------- linear


@maker(ranked(1, 4))
def matmul(d: Draft, x: str) -> None:
    shape = d.arrays[x].shape
    n = d.draw_int(1, 4)
    if math.prod(shape[:-1]) * n > MOST_ELEMENTS:
        return
    kind = d.draw_int(0, 4)
    if kind == 0:
        d.emit("MatMul", x, d.weight(shape[-1]))
    elif kind == 4:
        d.emit("MatMul", x, d.emit("Transpose", d.weight(n, shape[-1]), perm=[1, 0]))
    elif kind == 1 and len(shape) == 3:
        d.emit("MatMul", x, d.weight(shape[0] if d.flag() else 1, shape[-1], n))
    elif kind == 2 and len(shape) >= 2:
        d.emit("MatMul", d.weight(n, shape[-2]), x)
    else:
        d.emit("MatMul", x, d.weight(shape[-1], n))


@maker(ranked(2, 3))
def gram(d: Draft, x: str) -> None:
    """The product of a value with its own transpose."""
    rank = d.arrays[x].ndim
    perm = [*range(rank - 2), rank - 1, rank - 2]
    d.emit("MatMul", x, d.emit("Transpose", x, perm=perm))


@maker(ranked(2, 2))
def gemm(d: Draft, x: str) -> None:
    across, down = int(d.flag()), int(d.flag())
    rows, inner = d.arrays[x].shape[::-1] if across else d.arrays[x].shape
    n = d.draw_int(1, 5)
    bias = d.choose([(), (n,), (1, n), (rows, 1), (rows, n), None])
    extra = [] if bias is None else [d.weight(*bias)]
    w = d.weight(*((n, inner) if down else (inner, n)))
    scales = {"alpha": d.choose([1.0, 0.5]), "beta": d.choose([1.0, 0.25])}
    d.emit("Gemm", x, w, *extra, transA=across, transB=down, **scales)


@maker(ranked(2, 2))
def einsum(d: Draft, x: str) -> None:
    rows, columns = d.arrays[x].shape
    form = d.choose(["ij,jk->ik", "ij,jk->ki", "ij,ij->i", "ij,jk->k", "ij,ik->jk"])
    sizes = {"i": rows, "j": columns, "k": d.draw_int(1, 4)}
    d.emit("Einsum", x, d.weight(*(sizes[c] for c in form[3:5])), equation=form)


# ------------------------------------------------------------------------------- reduce


def axes_of(d: Draft, rank: int) -> list[int]:
    """At least one axis, some counted from the end."""
    chosen = [a for a in range(rank) if d.flag()] or [d.draw_int(0, rank - 1)]
    return [a - rank if d.flag() else a for a in chosen]


def reduction(op: str, fits: Fits = always) -> None:
    def make(d: Draft, x: str) -> None:
        rank = d.arrays[x].ndim
        chosen = axes_of(d, rank)
        given = [] if len(chosen) == rank and d.flag() else [d.integers(chosen)]
        d.emit(f"Reduce{op}", x, *given, keepdims=int(d.flag()))

    MAKERS.append((make, lambda x: x.ndim >= 1 and fits(x)))


for name in ("Sum", "Mean", "SumSquare", "LogSumExp", "Prod"):
    reduction(name)
for name in ("L1", "L2"):
    reduction(name, away_from(0.0))
for name in ("Max", "Min"):
    reduction(name, apart)
reduction("LogSum", lambda x: x.min(initial=1.0) > 0.1)


@maker(ranked(1))
def running_sum(d: Draft, x: str) -> None:
    axis = d.constant(np.int64(d.draw_int(0, d.arrays[x].ndim - 1)))
    d.emit("CumSum", x, axis, exclusive=int(d.flag()), reverse=int(d.flag()))


# -------------------------------------------------------------------------------- shape


@maker(always)
def reshape(d: Draft, x: str) -> None:
    size, shape = d.arrays[x].size, []
    while size > 1 and len(shape) < 3:
        factor = d.choose([f for f in range(1, size + 1) if size % f == 0])
        shape.append(factor)
        size //= factor
    shape.append(size)
    if d.flag():
        shape[d.draw_int(0, len(shape) - 1)] = -1
    d.emit("Reshape", x, d.integers(shape))


@maker(ranked(2))
def transpose(d: Draft, x: str) -> None:
    axes, perm = list(range(d.arrays[x].ndim)), []
    while axes:
        perm.append(axes.pop(d.draw_int(0, len(axes) - 1)))
    d.emit("Transpose", x, perm=perm)


@maker(ranked(0, 3))
def unsqueeze(d: Draft, x: str) -> None:
    d.emit("Unsqueeze", x, d.integers([d.draw_int(-1, d.arrays[x].ndim)]))


@maker(lambda x: 1 in x.shape)
def squeeze(d: Draft, x: str) -> None:
    d.emit("Squeeze", x, d.integers([d.arrays[x].shape.index(1)]))


@maker(ranked(1))
def flatten(d: Draft, x: str) -> None:
    d.emit("Flatten", x, axis=d.draw_int(0, d.arrays[x].ndim))


@maker(ranked(1))
def concat(d: Draft, x: str) -> None:
    axis = d.draw_int(0, d.arrays[x].ndim - 1)
    shape = list(d.arrays[x].shape)
    fit = [n for n in d.floats if _joins(d.arrays[n].shape, shape, axis)]
    shape[axis] = d.draw_int(1, 3)
    other = d.choose(fit) if d.flag() else d.weight(*shape)
    if d.arrays[x].size + d.arrays[other].size <= MOST_ELEMENTS:
        parts = [x, other] if d.flag() else [other, x, x]
        d.emit("Concat", *parts, axis=axis)


def _joins(a: tuple[int, ...], b: list[int], axis: int) -> bool:
    return len(a) == len(b) and all(
        i == axis or p == q for i, (p, q) in enumerate(zip(a, b, strict=True))
    )


@maker(lambda x: any(s >= 2 for s in x.shape))
def split(d: Draft, x: str) -> None:
    shape = d.arrays[x].shape
    axis = d.choose([a for a, s in enumerate(shape) if s >= 2])
    cut = d.draw_int(1, shape[axis] - 1)
    sizes = [cut, shape[axis] - cut]
    if sizes[1] >= 2 and d.flag():
        sizes[1:] = [1, sizes[1] - 1]
    d.emit("Split", x, d.integers(sizes), outputs=len(sizes), axis=axis)


@maker(ranked(1))
def window(d: Draft, x: str) -> None:
    shape = d.arrays[x].shape
    axis = d.draw_int(0, len(shape) - 1)
    start = d.draw_int(0, shape[axis] - 1)
    if d.flag():
        bounds = [start, -shape[axis] - 1, axis, -d.draw_int(1, 2)]
    else:
        bounds = [start, d.draw_int(start + 1, shape[axis]), axis, d.draw_int(1, 2)]
    if bounds[3] > 0:  # as PyTorch knows it
        d.emit("Slice", x, *(d.integers([b]) for b in bounds))


@maker(always)
def expand(d: Draft, x: str) -> None:
    shape = d.arrays[x].shape
    grown = [d.draw_int(1, 3) if s == 1 else s for s in shape]
    grown = [2, *grown] if d.flag() and len(grown) < 4 else grown
    if math.prod(grown) <= MOST_ELEMENTS:
        d.emit("Expand", x, d.integers(grown))


@maker(ranked(1))
def tile(d: Draft, x: str) -> None:
    repeats = [d.draw_int(1, 2) for _ in d.arrays[x].shape]
    if math.prod(repeats) * d.arrays[x].size <= MOST_ELEMENTS:
        d.emit("Tile", x, d.integers(repeats))


@maker(ranked(1))
def pad(d: Draft, x: str) -> None:
    pads = [d.draw_int(0, 1) for _ in range(2 * d.arrays[x].ndim)]
    if d.arrays[x].size <= MOST_ELEMENTS // 4:
        d.emit("Pad", x, d.integers(pads), d.constant(np.float64(0.5)))


@maker(ranked(1))
def gather(d: Draft, x: str) -> None:
    axis = d.draw_int(0, d.arrays[x].ndim - 1)
    size = d.arrays[x].shape[axis]
    count = d.draw_int(1, 4)
    if d.arrays[x].size // size * count <= MOST_ELEMENTS:
        d.emit("Gather", x, d.integers(d.rng.integers(0, size, count)), axis=axis)


@maker(ranked(1))
def gather_elements(d: Draft, x: str) -> None:
    axis = d.draw_int(0, d.arrays[x].ndim - 1)
    shape = d.arrays[x].shape
    d.emit("GatherElements", x, d.integers(d.rng.integers(0, shape[axis], shape)), axis=axis)


# ------------------------------------------------------------------------ norms, windows


@maker(ranked(1))
def softmax(d: Draft, x: str) -> None:
    rank = d.arrays[x].ndim
    d.emit(d.choose(["Softmax", "LogSoftmax"]), x, axis=d.draw_int(-rank, rank - 1))


def varied(x: Array) -> bool:
    """Whether every row that is normalised has some variance."""
    return x.ndim >= 1 and x.shape[-1] > 1 and bool(x.std(-1).min(initial=1.0) > 0.05)


@maker(varied)
def layer_norm(d: Draft, x: str) -> None:
    axis = d.draw_int(0, d.arrays[x].ndim - 1)
    shape = d.arrays[x].shape[axis:]
    extra = [d.weight(*shape)] if d.flag() else []
    d.emit("LayerNormalization", x, d.weight(*shape), *extra, axis=axis, epsilon=2.0**-10)


@maker(ranked(1))
def rms_norm(d: Draft, x: str) -> None:
    d.emit("RMSNormalization", x, d.weight(d.arrays[x].shape[-1]), epsilon=2.0**-6)


@maker(lambda x: x.ndim in (3, 4) and varied(x.reshape(*x.shape[:2], -1)))
def instance_norm(d: Draft, x: str) -> None:
    channels = d.arrays[x].shape[1]
    scale, bias = d.weight(channels), d.weight(channels)
    if channels % 2 == 0 and d.flag():
        d.emit("GroupNormalization", x, scale, bias, num_groups=channels // 2, epsilon=2.0**-10)
    else:
        d.emit("InstanceNormalization", x, scale, bias, epsilon=2.0**-10)


@maker(lambda x: x.ndim in (3, 4) and varied(np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)))
def batch_norm(d: Draft, x: str) -> None:
    channels = d.arrays[x].shape[1]
    scale, bias = d.weight(channels), d.weight(channels)
    mean = d.constant(d.rng.uniform(-1, 1, channels))
    var = d.constant(d.rng.uniform(0.5, 2, channels))
    given = {"training_mode": int(d.flag()), "epsilon": 2.0**-10}
    outputs = 3 if given["training_mode"] else 1
    before = len(d.floats)
    d.emit("BatchNormalization", x, scale, bias, mean, var, outputs=outputs, **given)
    del d.floats[before + 1 :]  # running statistics are not differentiated


@maker(ranked(3, 4))
def conv(d: Draft, x: str) -> None:
    n, channels, *sizes = d.arrays[x].shape
    group = channels if d.flag() else 1
    kernel = [d.draw_int(1, min(3, s)) for s in sizes]
    pads = [d.draw_int(0, k - 1) for k in kernel] * 2
    strides = [d.draw_int(1, 2) for _ in sizes]
    out = d.draw_int(1, 3) * group
    bias = [d.weight(out)] if d.flag() else []
    if n * out * math.prod(s + 2 for s in sizes) <= MOST_ELEMENTS:
        w = d.weight(out, channels // group, *kernel)
        d.emit("Conv", x, w, *bias, kernel_shape=kernel, pads=pads, strides=strides, group=group)


@maker(ranked(3, 4))
def conv_transpose(d: Draft, x: str) -> None:
    n, channels, *sizes = d.arrays[x].shape
    kernel = [d.draw_int(1, 2) for _ in sizes]
    strides = [d.draw_int(1, 2) for _ in sizes]
    out = d.draw_int(1, 2)
    if n * out * math.prod(2 * s + 2 for s in sizes) <= MOST_ELEMENTS:
        d.emit(
            "ConvTranspose",
            x,
            d.weight(channels, out, *kernel),
            kernel_shape=kernel,
            strides=strides,
        )


@maker(ranked(3, 4))
def pool(d: Draft, x: str) -> None:
    sizes = d.arrays[x].shape[2:]
    kernel = [d.draw_int(1, min(2, s)) for s in sizes]
    strides = [d.draw_int(1, 2) for _ in sizes]
    if d.flag():
        borders = {"pads": [d.draw_int(0, k // 2) for k in kernel] * 2}
        borders |= {"count_include_pad": int(d.flag())}
        d.emit("AveragePool", x, kernel_shape=kernel, strides=strides, **borders)
    elif apart(d.arrays[x]):
        d.emit("MaxPool", x, kernel_shape=kernel, strides=strides)


@maker(ranked(3, 4))
def global_pool(d: Draft, x: str) -> None:
    d.emit("GlobalAveragePool", x)
