"""Softmax cross-entropy of scores, also of a linear layer's block after block; gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.graph.specs import Spec
from gradtool.native import class_block as blocks
from gradtool.native import cross_entropy as scored
from gradtool.native import low_bits
from gradtool.operators.low_bits import table
from gradtool.ops.linear.native import _sizes as product_bytes
from gradtool.ops.linear.native import bound_product
from gradtool.ops.loss.layers import Layer, Product, coding, products, wanted
from gradtool.ops.native import Bound, are_floats, in_turn, native, room
from gradtool.ops.quantize.native import fits_matrix
from gradtool.ops.shared.types import Array, Arrays

Outputs = Sequence[Spec | None]
LABELS = (np.dtype(np.int32), np.dtype(np.int64))


def _fits(x: Spec, labels: Spec, *others: Spec | None, out: Outputs) -> bool:
    floats = are_floats(x, *others, *out) and labels.dtype in LABELS
    return floats and len(x.shape) > 1 and 0 not in x.shape


def _work(x: Spec) -> list[Spec]:
    return room(scored.work(x.shape))


def checked(call: Bound, strange: Array, classes: int) -> Bound:
    """A call that raises UsageError afterwards for a label out of range."""

    def check() -> None:
        if strange.item():
            raise UsageError(f"a label is not one of the {classes} classes of the scores")

    return in_turn(call, check)


@native("SoftmaxCrossEntropyLoss", fits=_fits, work=_work)
def cross_entropy(
    x: Array, labels: Array, weights: Array | None = None, *, out: Arrays, work: Arrays,
    reduction: str = "mean", ignore_index: int | None = None,
) -> Bound:  # fmt: skip
    """`lₙ = wₜ (log Σ exp xₙ - xₙₜ)`, and the logarithms of the softmax."""
    loss, log_prob = (*out, None)[:2]
    strange = np.zeros(1, np.int64)
    call = scored.cross_entropy(
        x, labels, weights, loss, log_prob, work[0], strange, reduction=reduction,
        ignore_index=ignore_index,
    )  # fmt: skip
    return checked(call, strange, x.shape[1])


@native("ai.gradtool::SoftmaxCrossEntropyLossGrad", fits=_fits, work=_work)
def cross_entropy_grad(
    x: Array, labels: Array, weights: Array | None, dy: Array | None,
    dlog_prob: Array | None = None, *, out: Arrays, work: Arrays, reduction: str,
    ignore_index: int | None = None,
) -> Bound:  # fmt: skip
    """`dx = g (p - onehot) + (dl - p Σ dl)` with p the softmax and g the weight of each sample."""
    strange = np.zeros(1, np.int64)
    call = scored.cross_entropy_grad(
        x, labels, weights, dy, dlog_prob, out[0], work[0], strange, reduction=reduction,
        ignore_index=ignore_index,
    )  # fmt: skip
    return checked(call, strange, x.shape[1])


FLOAT = np.dtype(np.float32)


def _fits_linear(before: int) -> Callable[..., bool]:
    """Whether the library has the types, with `before` operands between w and how it is coded."""

    def fits(
        x: Spec, labels: Spec, w: Spec, *others: Spec | None, out: Outputs, **given: Any
    ) -> bool:
        scale, *rest = (*others[before:], None)[:3]
        if labels.dtype not in LABELS or 0 in (*x.shape, *w.shape):
            return False
        floats = are_floats(x, *others[:before], *out)
        if scale is None:
            return floats and are_floats(w)
        said = coding(given)
        width = said["size"] == x.shape[1]
        return floats and width and fits_matrix(w, scale, *rest, **said)

    return fits


def _product_room(n: Layer, made: Sequence[Product]) -> int:
    return max(product_bytes(n.rows, n.size, x.shape[1], 1) for x, *_ in made)


def _forward_room(n: Layer, made: Sequence[Product], even: int) -> dict[str, Spec]:
    names = ("top", "total", "picked", *["even"] * even)
    found = {"z": Spec((n.rows * n.size,), FLOAT)}
    found |= {name: Spec((n.rows,), FLOAT) for name in names}
    (work,) = room(_product_room(n, made))
    return found | {"work": work}


def _forward_work(
    x: Spec, _labels: Spec, w: Spec, _bias: Spec | None = None, _weights: Spec | None = None,
    *adapter: Spec | None, out: Outputs, even: int = 0, transB: int = 0, **given: Any,
) -> list[Spec]:  # fmt: skip
    made = products(x, w, transB, *adapter, **given)
    return list(_forward_room(Layer.of(x, w, transB), made, even).values())


@native("ai.gradtool::LinearCrossEntropy", fits=_fits_linear(4), work=_forward_work)
def linear_cross_entropy(
    x: Array, labels: Array, w: Array, bias: Array | None = None, weights: Array | None = None,
    low: Array | None = None, up: Array | None = None, *matrix: Array | None, out: Arrays,
    work: Arrays, scale: float = 1.0, softcap: float = 0.0, ignore_index: int | None = None,
    even: int = 0, transB: int = 0, **given: Any,
) -> Bound:  # fmt: skip
    """`loss = lse - z[label]`, `lse = log Σ exp z`, and `Σ w (lse - z)` with `even`."""
    n = Layer.of(x, w, transB)
    made = products(x, w, transB, low, up, *matrix, **given)
    buffers = dict(zip(_forward_room(n, made, even), work, strict=True))
    strange = np.zeros(1, np.int64)
    sums = {name: buffers.get(name) for name in ("top", "total", "picked", "even")}
    results = dict(zip(("loss", "lse", "spread"), (*out, None, None), strict=False))
    none: dict[str, Array | None] = dict.fromkeys(results)
    calls: list[Bound] = []
    for some in n.blocks():
        z = _scores(n, some, made, bias, buffers, scale, calls)
        block = blocks.Block(z, labels, some.start, n.classes, softcap, weights)
        last = results if some.stop == n.classes else none
        calls.append(blocks.class_block(block, sums, last, strange, ignore_index=ignore_index))
    return checked(in_turn(*calls), strange, n.classes)


def _scores(
    n: Layer, some: slice, made: Sequence[Product], bias: Array | None,
    buffers: Mapping[str, Array], scale: float, calls: list[Bound],
) -> Array:  # fmt: skip
    """The place of the scores of some classes, after the calls that make them."""
    z = buffers["z"][: n.rows * (some.stop - some.start)].reshape(n.rows, -1)
    how: dict[str, Any] = {"alpha": scale, "bias": None if bias is None else bias.reshape(-1)[some]}
    for product in made:
        calls.append(_product(product, some, product.x, z, buffers["work"], **how))
        how = {"beta": 1.0}
    return z


def _product(
    product: Product, some: slice, a: Array, out: Array, work: Array, *, turned: bool = True,
    **how: Any,
) -> Bound:  # fmt: skip
    """The call of `a Wᵀ` (not `turned`: `a W`), W the weights of some classes, [n, K]."""
    held = product.coded
    if held is None:
        w = product.of_classes(product.w, some)
        return bound_product(a, w.T if turned else w, out, work, **how)
    return low_bits.product(
        a, held.codes[some], held.scale[some], out, work, bits=held.bits, block=held.block_size,
        turned=turned, zero=None if held.zero is None else held.zero[some], groups=held.groups,
        table=table(held.values, FLOAT) if held.values else None, **how,
    )  # fmt: skip


def _backward_room(n: Layer, made: Sequence[Product], of: Sequence[int]) -> dict[str, Spec]:
    sizes = [_product_room(n, made)]
    for i, (x, _, turned, _) in enumerate(made):
        width = x.shape[1]
        sizes += [product_bytes(n.rows, width, n.size, 1)] * (3 * i in of)
        a, b = (n.size, width) if turned else (width, n.size)
        sizes += [product_bytes(a, b, n.rows, 1)] * (3 * i + 1 in of)
    (work,) = room(max(sizes))
    return {"z": Spec((n.rows * n.size,), FLOAT), "work": work}


def _backward_work(
    x: Spec, _labels: Spec, w: Spec, _bias: Spec | None, _weights: Spec | None, _lse: Spec,
    _of_all: Spec, _of_label: Spec, _of_even: Spec | None = None, *adapter: Spec | None,
    out: Outputs, of: Sequence[int], transB: int = 0, **given: Any,
) -> list[Spec]:  # fmt: skip
    made = products(x, w, transB, *adapter, **given)
    return list(_backward_room(Layer.of(x, w, transB), made, wanted(of, out)).values())


@native("ai.gradtool::LinearCrossEntropyGrad", fits=_fits_linear(8), work=_backward_work)
def linear_cross_entropy_grad(
    x: Array, labels: Array, w: Array, bias: Array | None, weights: Array | None, lse: Array,
    of_all: Array, of_label: Array, of_even: Array | None = None, low: Array | None = None,
    up: Array | None = None, *matrix: Array | None, out: Arrays, work: Arrays, of: Sequence[int],
    scale: float = 1.0, softcap: float = 0.0, transB: int = 0, **coded: Any,
) -> Bound:  # fmt: skip
    """`dz = of_all · p - of_label · onehot - of_even · w`, and the gradients that are `of`."""
    n = Layer.of(x, w, transB)
    made = products(x, w, transB, low, up, *matrix, **coded)
    buffers = dict(zip(_backward_room(n, made, wanted(of, out)), work, strict=True))
    found = dict(zip(of, out, strict=True))
    given = {"lse": lse, "of_all": of_all, "of_label": of_label, "of_even": of_even}
    dbias = found.get(2)
    calls: list[Bound] = []
    for some in n.blocks():
        z = _scores(n, some, made, bias, buffers, scale, calls)
        block = blocks.Block(z, labels, some.start, n.classes, softcap, weights)
        part = None if dbias is None else dbias.reshape(-1)[some]
        calls.append(blocks.class_block_grad(block, given, part))
        for i, product in enumerate(made):
            how: dict[str, Any] = {"alpha": 1.0 if i else scale}
            if (dx := found.get(3 * i)) is not None:
                beta = float(some.start > 0)
                calls.append(
                    _product(product, some, z, dx, buffers["work"], turned=False, beta=beta, **how)
                )
            if (dw := found.get(3 * i + 1)) is not None:
                pair = (z.T, product.x) if product.turned else (product.x.T, z)
                target = dw[some] if product.turned else dw[:, some]
                calls.append(bound_product(*pair, target, buffers["work"], **how))
    return in_turn(*calls)
