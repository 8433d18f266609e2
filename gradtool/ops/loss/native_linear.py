"""Cross-entropy of the scores of a linear layer by the library's products, block after block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import class_block as library
from gradtool.ops.linear.native import _sizes as product_bytes
from gradtool.ops.linear.native import bound_product
from gradtool.ops.loss.kernel_linear import Layer, wanted
from gradtool.ops.loss.native import LABELS, checked
from gradtool.ops.native import Bound, are_floats, in_turn, native, room
from gradtool.ops.shared.types import Array, Arrays

Outputs = Sequence[Spec | None]
FLOAT = np.dtype(np.float32)


def _fits(x: Spec, labels: Spec, w: Spec, *others: Spec | None, out: Outputs, **_: Any) -> bool:
    there = labels.dtype in LABELS and 0 not in (*x.shape, *w.shape)
    return there and are_floats(x, w, *others, *out)


def _forward_room(n: Layer, even: int) -> dict[str, Spec]:
    names = ("top", "total", "picked", *["even"] * even)
    found = {"z": Spec((n.rows * n.size,), FLOAT)}
    found |= {name: Spec((n.rows,), FLOAT) for name in names}
    (work,) = room(product_bytes(n.rows, n.size, n.width, 1))
    return found | {"work": work}


def _forward_work(
    x: Spec, _labels: Spec, w: Spec, *_: Spec | None, out: Outputs, even: int = 0, transB: int = 0,
    **__: Any,
) -> list[Spec]:  # fmt: skip
    return list(_forward_room(Layer.of(x, w, transB), even).values())


@native("ai.gradtool::LinearCrossEntropy", fits=_fits, work=_forward_work)
def linear_cross_entropy(
    x: Array, labels: Array, w: Array, bias: Array | None = None, weights: Array | None = None, *,
    out: Arrays, work: Arrays, scale: float = 1.0, softcap: float = 0.0,
    ignore_index: int | None = None, even: int = 0, transB: int = 0,
) -> Bound:  # fmt: skip
    """`loss = lse - z[label]`, `lse = log Σ exp z`, and `Σ w (lse - z)` with `even`."""
    n = Layer.of(x, w, transB)
    buffers = dict(zip(_forward_room(n, even), work, strict=True))
    strange = np.zeros(1, np.int64)
    sums = {name: buffers.get(name) for name in ("top", "total", "picked", "even")}
    results = dict(zip(("loss", "lse", "spread"), (*out, None, None), strict=False))
    none: dict[str, Array | None] = dict.fromkeys(results)
    calls: list[Bound] = []
    for some in n.blocks():
        z = _scores(n, some, x, w, bias, buffers, scale, calls)
        block = library.Block(z, labels, some.start, n.classes, softcap, weights)
        last = results if some.stop == n.classes else none
        calls.append(library.class_block(block, sums, last, strange, ignore_index=ignore_index))
    return checked(in_turn(*calls), strange, n.classes)


def _scores(
    n: Layer, some: slice, x: Array, w: Array, bias: Array | None, buffers: Mapping[str, Array],
    scale: float, calls: list[Bound],
) -> Array:  # fmt: skip
    """The place of the scores of some classes, after the calls that make them."""
    z = buffers["z"][: n.rows * (some.stop - some.start)].reshape(n.rows, -1)
    added = None if bias is None else bias.reshape(-1)[some]
    block = n.of_classes(w, some)
    calls.append(bound_product(x, block.T, z, buffers["work"], alpha=scale, bias=added))
    return z


def _backward_room(n: Layer, of: Sequence[int]) -> dict[str, Spec]:
    sizes = [product_bytes(n.rows, n.size, n.width, 1)]
    sizes += [product_bytes(n.rows, n.width, n.size, 1)] * (0 in of)
    pair = (n.size, n.width) if n.turned else (n.width, n.size)
    sizes += [product_bytes(*pair, n.rows, 1)] * (1 in of)
    (work,) = room(max(sizes))
    return {"z": Spec((n.rows * n.size,), FLOAT), "work": work}


def _backward_work(
    x: Spec, _labels: Spec, w: Spec, *_: Spec | None, out: Outputs, of: Sequence[int],
    transB: int = 0, **__: Any,
) -> list[Spec]:  # fmt: skip
    return list(_backward_room(Layer.of(x, w, transB), wanted(of, out)).values())


@native("ai.gradtool::LinearCrossEntropyGrad", fits=_fits, work=_backward_work)
def linear_cross_entropy_grad(
    x: Array, labels: Array, w: Array, bias: Array | None, weights: Array | None, lse: Array,
    of_all: Array, of_label: Array, of_even: Array | None = None, *, out: Arrays, work: Arrays,
    of: Sequence[int], scale: float = 1.0, softcap: float = 0.0, transB: int = 0,
) -> Bound:  # fmt: skip
    """`dz = of_all · p - of_label · onehot - of_even · w`, and of (x, W, bias) those `of`."""
    n = Layer.of(x, w, transB)
    buffers = dict(zip(_backward_room(n, wanted(of, out)), work, strict=True))
    made = dict(zip(of, out, strict=True))
    dx, dw, dbias = (made.get(i) for i in range(3))
    given = {"lse": lse, "of_all": of_all, "of_label": of_label, "of_even": of_even}
    calls: list[Bound] = []
    for some in n.blocks():
        z = _scores(n, some, x, w, bias, buffers, scale, calls)
        block = library.Block(z, labels, some.start, n.classes, softcap, weights)
        part = None if dbias is None else dbias.reshape(-1)[some]
        calls.append(library.class_block_grad(block, given, part))
        if dx is not None:
            beta = float(some.start > 0)
            rows = n.of_classes(w, some)
            calls.append(bound_product(z, rows, dx, buffers["work"], alpha=scale, beta=beta))
        if dw is not None and transB:
            calls.append(bound_product(z.T, x, dw[some], buffers["work"], alpha=scale))
        elif dw is not None:
            calls.append(bound_product(x.T, z, dw[:, some], buffers["work"], alpha=scale))
    return in_turn(*calls)
