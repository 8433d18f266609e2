"""Cross-entropy of the scores of a linear layer, a block of classes at a time.

A block holds its classes' scores of all rows: the logarithm of the sum of all powers is found as in
online softmax, and backward computes each block again.  Each weight is read once a pass, and the
gradient of each written once, in the end.

Sources: Wijmans et al. 2024 (arXiv:2411.09009); Milakov and Gimelshein 2018 (arXiv:1805.02867).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.ops.kernels import kernel
from gradtool.ops.loss.kernel import MOST, SAMPLES
from gradtool.ops.loss.layers import Layer, Product, products, wanted
from gradtool.ops.shared.bounds import within
from gradtool.ops.shared.types import Array, Arrays

Outputs = Sequence[Spec | None]
CODES = "codes"  # by number, where weights of few bits are decoded


def _room(n: Layer, made: Sequence[Product], spare: int) -> dict[str, Spec]:
    """Workspace for the scores of a block, and `spare` more of their size."""
    block = Spec((n.rows * n.size,), n.dtype)
    room = {"z": block} | {f"spare{i}": block for i in range(spare)}
    for i, (x, _, _, coded) in enumerate(made):
        if x.dtype != n.dtype:
            room[f"x{i}"] = Spec((n.rows * x.shape[1],), n.dtype)
        if x.dtype != n.dtype or coded is not None:
            room[f"w{i}"] = Spec((n.size * x.shape[1],), n.dtype)
        needed = [] if coded is None else coded.room(n.dtype)
        room |= {f"{CODES}{j}": spec for j, spec in enumerate(needed)}
    return room | ({"more": block} if len(made) > 1 else {})


def _forward_room(n: Layer, made: Sequence[Product], *, even: int) -> dict[str, Spec]:
    names = ("top", "total", "picked", "stat", *["even"] * even)
    return _room(n, made, 0) | {name: Spec((n.rows,), n.dtype) for name in names}


def _forward_work(
    x: Spec, _labels: Spec, w: Spec, _bias: Spec | None = None, _weights: Spec | None = None,
    *adapter: Spec | None, out: Outputs, even: int = 0, transB: int = 0, **given: Any,
) -> list[Spec]:  # fmt: skip
    made = products(x, w, transB, *adapter, **given)
    return list(_forward_room(Layer.of(x, w, transB), made, even=even).values())


@kernel("ai.gradtool::LinearCrossEntropy", work=_forward_work)
def linear_cross_entropy(
    xp: Any, x: Array, labels: Array, w: Array, bias: Array | None = None,
    weights: Array | None = None, low: Array | None = None, up: Array | None = None,
    *matrix: Array | None, out: Arrays, work: Arrays, scale: float = 1.0, softcap: float = 0.0,
    ignore_index: int | None = None, even: int = 0, transB: int = 0, **coding: Any,
) -> None:  # fmt: skip
    """`loss = lse - z[label]`, `lse = log Σ exp z`, and `Σ w (lse - z)` with `even`."""
    n = Layer.of(x, w, transB)
    made = products(x, w, transB, low, up, *matrix, **coding)
    buffers = dict(zip(_forward_room(n, made, even=even), work, strict=True))
    made = _wide(xp, made, buffers)
    top, total, picked, stat = (buffers[name] for name in ("top", "total", "picked", "stat"))
    top.fill(np.finfo(n.dtype).min)
    for name in ("total", "picked", *["even"] * even):
        buffers[name].fill(0)
    _check(xp, labels, n.classes, ignore_index)
    for some in n.blocks():
        z = _scores(xp, n, some, _of_block(xp, made, some, buffers), bias, buffers, scale)
        if softcap:
            _capped(xp, z, softcap)
        for rows, found, places in _hits(xp, labels, some):
            part = z[rows]
            picked[rows] += xp.where(found, xp.take_along_axis(part, places, 1)[:, 0], 0)
        if even:
            share = None if weights is None else weights[some]
            _add_even(xp, z, share, stat, buffers["even"])
        _online(xp, z, top, total, stat)
    loss, lse, spread = (*out, None, None)[:3]
    xp.log(total, out=total)
    if loss is not None:
        xp.subtract(top, picked, out=picked)
        xp.add(picked, total, out=loss)
        if ignore_index is not None:
            xp.copyto(loss, 0, where=labels == ignore_index)
    xp.add(top, total, out=top)
    if lse is not None:
        xp.copyto(lse, top)
    if spread is not None:
        xp.multiply(top, n.classes if weights is None else weights.sum(), out=top)
        xp.subtract(top, buffers["even"], out=spread)


def _add_even(xp: Any, z: Array, share: Array | None, stat: Array, even: Array) -> None:
    """Add the scores of each row, each class with its share or 1."""
    if share is None:
        xp.sum(z, axis=1, out=stat)
    else:
        xp.matmul(z, share, out=stat)
    xp.add(even, stat, out=even)


def _online(xp: Any, z: Array, top: Array, total: Array, stat: Array) -> None:
    """Take a block into the greatest scores and the sums of `exp(z - top)`; z is lost."""
    xp.max(z, axis=1, out=stat)
    xp.maximum(stat, top, out=stat)
    xp.subtract(top, stat, out=top)
    xp.multiply(total, xp.exp(top, out=top), out=total)
    xp.copyto(top, stat)
    xp.exp(xp.subtract(z, top[:, None], out=z), out=z)
    xp.add(total, xp.sum(z, axis=1, out=stat), out=total)


def _backward_room(
    n: Layer, made: Sequence[Product], of: Sequence[int], *, spare: int
) -> dict[str, Spec]:
    room = _room(n, made, spare)
    for i, (x, _, turned, _) in enumerate(made):
        rows, block = (Spec((count * x.shape[1],), n.dtype) for count in (n.rows, n.size))
        if 3 * i in of and n.size < n.classes:
            room[f"part{i}"] = rows
        if 3 * i in of and x.dtype != n.dtype:
            room[f"dx{i}"] = rows
        if 3 * i + 1 in of and (x.dtype != n.dtype or not turned):
            room[f"dw{i}"] = block
    return room


def _spare(softcap: float, of_even: Array | Spec | None) -> int:
    return int(softcap > 0) + int(of_even is not None)


def _backward_work(
    x: Spec, _labels: Spec, w: Spec, _bias: Spec | None, _weights: Spec | None, _lse: Spec,
    _of_all: Spec, _of_label: Spec, of_even: Spec | None = None, *adapter: Spec | None,
    out: Outputs, of: Sequence[int], softcap: float = 0.0, transB: int = 0, **given: Any,
) -> list[Spec]:  # fmt: skip
    n, made = Layer.of(x, w, transB), products(x, w, transB, *adapter, **given)
    spare = _spare(softcap, of_even)
    return list(_backward_room(n, made, wanted(of, out), spare=spare).values())


@kernel("ai.gradtool::LinearCrossEntropyGrad", work=_backward_work)
def linear_cross_entropy_grad(
    xp: Any, x: Array, labels: Array, w: Array, bias: Array | None, weights: Array | None,
    lse: Array, of_all: Array, of_label: Array, of_even: Array | None = None,
    low: Array | None = None, up: Array | None = None, *matrix: Array | None, out: Arrays,
    work: Arrays, of: Sequence[int], scale: float = 1.0, softcap: float = 0.0, transB: int = 0,
    **coding: Any,
) -> None:  # fmt: skip
    """Gradients by those of (x, W, bias, low, up) that are `of`.

    dz = of_all · p - of_label · onehot - of_even · w    p = exp(z - lse)
    """
    n = Layer.of(x, w, transB)
    made = products(x, w, transB, low, up, *matrix, **coding)
    spare, found = _spare(softcap, of_even), dict(zip(of, out, strict=True))
    room_of = _backward_room(n, made, wanted(of, out), spare=spare)
    buffers = dict(zip(room_of, work, strict=True))
    made, dbias = _wide(xp, made, buffers), found.get(2)
    for some in n.blocks():
        here = _of_block(xp, made, some, buffers)
        z = _scores(xp, n, some, here, bias, buffers, scale)
        room = [buffers[f"spare{i}"][: z.size].reshape(z.shape) for i in range(spare)]
        slope = _capped(xp, z, softcap, room.pop()) if softcap else None
        _to_gradient(xp, z, _hits(xp, labels, some), (lse, of_all, of_label))
        if of_even is not None:
            of_class = 1 if weights is None else weights[some]
            xp.subtract(z, xp.multiply(of_even[:, None], of_class, out=room[0]), out=z)
        if slope is not None:
            xp.multiply(z, slope, out=z)
        if dbias is not None:
            _add_columns(xp, z, dbias.reshape(-1)[some])
        _put_products(xp, z, some, here, found, buffers, scale)
    for i in range(len(made)):
        if f"dx{i}" in buffers:
            dx = found[3 * i]
            xp.copyto(dx, buffers[f"dx{i}"].reshape(dx.shape), casting="unsafe")


def _put_products(
    xp: Any, dz: Array, some: slice, made: Sequence[Product], found: Mapping[int, Array],
    buffers: Mapping[str, Array], scale: float,
) -> None:  # fmt: skip
    """What a block gives to the gradients of rows and weights; dz is scaled in the end."""
    for i, product in reversed(list(enumerate(made))):
        if i == 0 and scale != 1:
            xp.multiply(dz, scale, out=dz)
        if (dx := found.get(3 * i)) is not None:
            _add_rows(xp, i, some, dz, product, dx, buffers)
        if (dw := found.get(3 * i + 1)) is not None:
            target = product.of_classes(dw, some)
            _put_weights(xp, dz, product.x, target, buffers.get(f"dw{i}"))


def _to_gradient(
    xp: Any, z: Array, hits: Iterator[tuple[slice, Array, Array]], of: Sequence[Array]
) -> None:
    """Put `of_all · exp(z - lse) - of_label · onehot` in the place of z."""
    lse, of_all, of_label = of
    xp.exp(xp.subtract(z, lse[:, None], out=z), out=z)
    xp.multiply(z, of_all[:, None], out=z)
    for rows, found, places in hits:
        part = z[rows]
        less = xp.where(found, of_label[rows], 0).astype(z.dtype)
        part[xp.arange(part.shape[0]), places[:, 0]] -= less


def _add_columns(xp: Any, z: Array, out: Array) -> None:
    """Sums of columns; of many rows by parts, so that rounding errors do not add up."""
    xp.sum(z[:SAMPLES], axis=0, out=out, dtype=z.dtype)
    for start in range(SAMPLES, z.shape[0], SAMPLES):
        out += xp.sum(z[start : start + SAMPLES], axis=0, dtype=z.dtype).astype(out.dtype)


def _put_weights(xp: Any, dz: Array, x: Array, out: Array, room: Array | None) -> None:
    """`dzᵀ x`, the gradient of the weights of a block."""
    if room is None:
        xp.matmul(dz.T, x, out=out)
        return
    made = room[: out.size].reshape(out.shape)
    xp.copyto(out, xp.matmul(dz.T, x, out=made), casting="unsafe")


def _add_rows(
    xp: Any, i: int, some: slice, dz: Array, product: Product, dx: Array,
    buffers: Mapping[str, Array],
) -> None:  # fmt: skip
    """Add what a block gives to the gradient of the rows of product i."""
    total = buffers[f"dx{i}"].reshape(dx.shape) if f"dx{i}" in buffers else dx
    if some.start == 0:
        xp.matmul(dz, product.w, out=total)
        return
    part = buffers[f"part{i}"].reshape(total.shape)
    xp.add(total, xp.matmul(dz, product.w, out=part), out=total)


def _scores(
    xp: Any, n: Layer, some: slice, made: Sequence[Product], bias: Array | None,
    buffers: Mapping[str, Array], scale: float,
) -> Array:  # fmt: skip
    """`scale · x W + low up + bias` of all rows for some classes."""
    count = some.stop - some.start
    z = buffers["z"][: n.rows * count].reshape(n.rows, count)
    for i, product in enumerate(made):
        if i:
            more = buffers["more"][: z.size].reshape(z.shape)
            xp.add(z, xp.matmul(product.x, product.w.T, out=more), out=z)
            continue
        xp.matmul(product.x, product.w.T, out=z)
        if scale != 1:
            xp.multiply(z, scale, out=z)
    if bias is not None:
        xp.add(z, bias.reshape(-1)[some], out=z)
    return z


def _of_block(
    xp: Any, made: Sequence[Product], some: slice, buffers: Mapping[str, Array]
) -> list[Product]:
    """Products with the weights of some classes, [n, K], in the type of scores."""
    work = [room for name, room in buffers.items() if name.startswith(CODES)]
    found = []
    for i, product in enumerate(made):
        shape = (some.stop - some.start, product.x.shape[1])
        if f"w{i}" not in buffers:
            block = product.of_classes(product.w, some)
        else:
            block = buffers[f"w{i}"][: math.prod(shape)].reshape(shape)
            if product.coded is None:
                xp.copyto(block, product.of_classes(product.w, some))
            else:
                product.coded.put_rows(xp, some, block, work)
        found.append(product._replace(w=block))
    return found


def _wide(xp: Any, made: Sequence[Product], buffers: Mapping[str, Array]) -> list[Product]:
    """Products with their rows in the type of scores."""
    found = []
    for i, product in enumerate(made):
        x = product.x
        if f"x{i}" in buffers:
            x = buffers[f"x{i}"].reshape(x.shape)
            xp.copyto(x, product.x)
        found.append(product._replace(x=x))
    return found


def _capped(xp: Any, z: Array, cap: float, slope: Array | None = None) -> Array | None:
    """Put `cap · tanh(z / cap)` in the place of z; what its slope is, if there is room for it."""
    xp.tanh(xp.divide(z, cap, out=z), out=z)
    if slope is not None:
        xp.subtract(1, xp.multiply(z, z, out=slope), out=slope)
    xp.multiply(z, cap, out=z)
    return slope


def _hits(xp: Any, labels: Array, some: slice) -> Iterator[tuple[slice, Array, Array]]:
    """Some rows at a time, which of their labels are among some classes, and where, [rows, 1]."""
    step = at_a_time(SAMPLES, MOST)
    for start in range(0, labels.shape[0], step):
        rows = slice(start, start + step)
        places = labels[rows] - some.start
        found = (places >= 0) & (places < some.stop - some.start)
        yield rows, found, xp.where(found, places, 0)[:, None]


def _check(xp: Any, labels: Array, classes: int, ignored: int | None) -> None:
    """Refuse a label that is no class."""
    step = at_a_time(SAMPLES, MOST)

    def wrong() -> UsageError:
        return UsageError(f"a label is not one of the {classes} classes of the scores")

    for start in range(0, labels.shape[0], step):
        part = labels[start : start + step]
        part = part if ignored is None else xp.where(part == ignored, 0, part)
        within(xp, part, 0, classes, wrong)
