"""Cross-entropy of the scores of a linear layer, by blocks of classes.

Rows `x` [N, K] have scores `z = cap(scale · x W + low up + bias)` of C classes, W being [K, C], or
[C, K] with `transB`, and `cap(u) = c · tanh(u / c)` with a `softcap` c; `low` [N, R] and `up`
[R, C] are the two halves of an adapter, if there is one.  A block of classes is scored for all rows
at once, so that each weight is read once, and the gradient of each written once: neither
the scores nor their gradient ever exist whole.

Source: Wijmans et al. 2024, Cut Your Losses in Large-Vocabulary Language Models (arXiv:2411.09009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Dim, Tensor, as_tensor
from gradtool.ops.attention.body_form import _range
from gradtool.ops.attention.body_rows import Rows
from gradtool.ops.loss.body import refused_below_zero
from gradtool.ops.quantize.body_low_bits import decoded
from gradtool.ops.shared.accumulation import widened

INT64 = ir.DataType.INT64
OPEN = 1024  # rows, where their number is open


def _forward_shapes(x: Tensor) -> Outputs:
    return [([x.shape[0]], widened(x))] * 3


@composite("LinearCrossEntropy", shapes=_forward_shapes, outputs=3)
def linear_cross_entropy(
    op: Builder, x: Tensor, labels: Tensor, w: Tensor, bias: Tensor | None = None,
    weights: Tensor | None = None, low: Tensor | None = None, up: Tensor | None = None,
    scales: Tensor | None = None, zeros: Tensor | None = None, groups: Tensor | None = None, *,
    scale: float = 1.0, softcap: float = 0.0, ignore_index: int | None = None, even: int = 0,
    transB: int = 0, **coding: Any,
) -> list[Tensor]:  # fmt: skip
    """`loss = lse - z[label]`, 0 of an ignored label, and `lse = log Σ exp z` of each row.

    With `even` also `Σ w (lse - z)` over all classes, each with its weight or 1.  With `scales`
    w are codes of few bits `[C, blocks, bytes]`, and transB is 1: scales, zeros, groups and
    attributes are those of `QuantizedMatMul`.
    """
    given = _Weights(op, w, bool(transB), (scales, zeros, groups), coding)
    form = _Form.of(op, (x, given, bias, low, up), scale, softcap)
    column = op.unsqueeze(labels, 1)
    zero = op.cast(op.zeros_like(column), form.wide)
    lowest = op.constant(float(np.finfo(form.wide.numpy()).min), form.wide)

    def block(
        sums: Sequence[Tensor], at: Tensor | None
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """The greatest scores, and the sums of powers and of scores, with a block's."""
        top, total, *rest = sums
        z = form.masked(form.scores(at), at, -np.inf, axis=1)
        higher = op.Max(top, op.ReduceMax(z, [1], keepdims=1))
        total = total * op.Exp(top - higher) + op.sum(op.Exp(z - higher), [1], keepdims=True)
        if rest:
            z = form.masked(z, at, 0.0, axis=1)
            z = z if weights is None else z * op.unsqueeze(form.weights_of(weights, at), 0)
            rest = [rest[0] + op.sum(z, [1], keepdims=True)]
        return [higher, total, *rest], []

    starts = [zero + lowest, zero, *[zero] * even]
    (top, total, *rest), _ = form.blocks.each(op, starts, block)
    lse = op.squeeze(top + op.Log(total), 1)
    places = refused_below_zero(op, labels, ignore_index)
    counted = None
    if ignore_index is not None:
        counted = op.Not(op.Equal(labels, op.constant(ignore_index, labels.dtype)))
        places = op.Where(counted, places, op.constant(0, labels.dtype))
    loss = lse - form.scores_at(places)
    if counted is not None:
        loss = op.Where(counted, loss, op.constant(0.0, loss.dtype))
    if not rest:
        return [loss, lse]
    return [loss, lse, lse * total_weight(op, w, weights, lse, transB) - op.squeeze(rest[0], 1)]


def total_weight(
    op: Builder, w: Tensor, weights: Tensor | None, like: Tensor, turned: int
) -> Tensor:
    """The sum of the weights of all classes, each 1 where there are none, in the type of `like`."""
    if weights is None:
        return op.cast(op.length(w, [0 if turned else 1]), like.dtype)
    return op.sum(op.cast(weights, like.dtype), [0])


def _backward_shapes(
    x: Tensor, _labels: Tensor, w: Tensor, bias: Tensor | None, _weights: Tensor | None,
    _lse: Tensor, _of_all: Tensor, _of_label: Tensor, _of_even: Tensor | None = None,
    *adapter: Tensor | None, of: Sequence[int],
) -> Outputs:  # fmt: skip
    operands = (x, w, bias, *adapter)
    return [(a.shape, a.dtype) for a in (operands[i] for i in of) if a is not None]


@composite("LinearCrossEntropyGrad", shapes=_backward_shapes, outputs=1)
def linear_cross_entropy_grad(
    op: Builder, x: Tensor, labels: Tensor, w: Tensor, bias: Tensor | None,
    weights: Tensor | None, lse: Tensor, of_all: Tensor, of_label: Tensor,
    of_even: Tensor | None = None, low: Tensor | None = None, up: Tensor | None = None,
    scales: Tensor | None = None, zeros: Tensor | None = None, groups: Tensor | None = None, *,
    of: Sequence[int], scale: float = 1.0, softcap: float = 0.0, transB: int = 0, **coding: Any,
) -> list[Tensor]:  # fmt: skip
    """Gradients by those of (x, W, bias, low, up) that are `of`; the scores are computed again.

        dz = of_all · p - of_label · onehot - of_even · w    p = exp(z - lse)

    All is turned, classes by rows: no product is one of forward, which a runtime that merges equal
    nodes would keep for it.
    """
    given = _Weights(op, w, bool(transB), (scales, zeros, groups), coding)
    form = _Form.of(op, (x, given, bias, low, up), scale, softcap)
    row = {name: op.unsqueeze(a, 0) for name, a in
           {"lse": lse, "all": of_all, "label": of_label}.items()}  # fmt: skip
    place = op.unsqueeze(op.cast(labels, INT64), 0)
    by_row = [(i, a) for i, a in ((0, x), (3, low)) if i in of and a is not None]
    by_class = [i for i in (1, 2, 4) if i in of]
    likes = [op.cast(op.zeros_like(a), form.wide) for _, a in by_row]
    likes = likes if form.blocks.count > 1 else []

    def block(
        sums: Sequence[Tensor], at: Tensor | None
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """A block's part of dx, and the gradients of its weights and biases."""
        u = form.scores(at, turned=True, capped=False)
        z, slope = form.capped(u)
        dz = op.Exp(form.masked(z, at, -np.inf, axis=0) - row["lse"]) * row["all"]
        here = _range(op, z, -2) if at is None else at
        hit = op.Equal(op.unsqueeze(here, 1), place)
        dz = dz - op.Where(hit, row["label"], op.constant(0.0, dz.dtype))
        if of_even is not None:
            share = op.unsqueeze(of_even, 0)
            if weights is not None:
                share = share * op.unsqueeze(form.weights_of(weights, at), 1)
            dz = dz - form.masked(share, at, 0.0, axis=0)
        du = dz if slope is None else dz * slope
        found = {2: du if bias is None else op.cast(op.sum(du, [1], keepdims=True), bias.dtype)}
        dw = op.cast(du if scale == 1 else du * scale, x.dtype)
        found |= form.terms(at, dw, op.cast(du, x.dtype), of)
        added = [found[i] for i, _ in by_row]
        added = [a + b for a, b in zip(sums, added, strict=True)] if sums else added
        return added, [found[i] for i in by_class]

    sums, rows = form.blocks.each(op, likes, block)
    made = dict(zip([*(i for i, _ in by_row), *by_class], (*sums, *rows), strict=True))
    made |= {i: op.cast(made[i], x.dtype) for i, _ in by_row}
    made |= {i: op.swap_axes(made[i], 0, 1) for i in (4, *[1] * (not transB)) if i in made}
    if 2 in made and bias is not None:
        made[2] = op.reshape(made[2], list(bias.shape))
    return [made[i] for i in of]


@dataclass(frozen=True)
class _Weights:
    """Weights [K, C], or [C, K] where `turned`; or codes of few bits with scales, zeros, groups."""

    op: Builder
    w: Tensor
    turned: bool
    matrix: tuple[Tensor | None, ...]
    coding: Mapping[str, Any]

    @property
    def classes(self) -> Dim:
        """The number C."""
        return self.w.shape[0 if self.turned else 1]

    def of(self, classes: Tensor | None) -> Tensor:
        """The weights of some classes, or of all, [n, K]."""
        scale, zero, groups = self.matrix
        if scale is None:
            w = self._taken(self.w, classes, axis=0 if self.turned else 1)
            return w if self.turned else self.op.swap_axes(w, 0, 1)
        w, scale = self._taken(self.w, classes), self._taken(scale, classes)
        zero = None if zero is None else self._taken(zero, classes)
        return decoded(self.op, w, scale, zero, groups, **self.coding)

    def _taken(self, a: Tensor, classes: Tensor | None, axis: int = 0) -> Tensor:
        return a if classes is None else self.op.Gather(a, classes, axis=axis)


@dataclass(frozen=True)
class _Form:
    """A linear layer whose scores are made by blocks of classes."""

    op: Builder
    x: Tensor
    w: _Weights
    bias: Tensor | None
    low: Tensor | None
    up: Tensor | None
    scale: float
    softcap: float
    blocks: Rows

    @staticmethod
    def of(op: Builder, operands: tuple[Any, ...], scale: float, softcap: float) -> _Form:
        x, w, bias, low, up = operands
        rows = x.shape[0]
        blocks = Rows.of([w.classes, rows if isinstance(rows, int) else OPEN])
        return _Form(op, x, w, bias, low, up, scale, softcap, blocks)

    @property
    def wide(self) -> ir.DataType:
        """The type of scores."""
        return widened(self.x)

    def block(self, at: Tensor | None) -> Tensor:
        """The weights of a block of classes, [block, K]."""
        return self.w.of(None if at is None else self._there(at))

    def of_adapter(self, at: Tensor | None) -> Tensor:
        """The upper half of the adapter for a block of classes, [block, R]."""
        up = self.up if at is None else self.op.Gather(self.up, self._there(at), axis=1)
        return self.op.swap_axes(as_tensor(up), 0, 1)

    def terms(
        self, at: Tensor | None, dw: Tensor, du: Tensor, of: Sequence[int]
    ) -> dict[int, Tensor]:
        """A block's parts of the gradients of (x, W, low, up), from those by `x W` and `low up`."""
        op, found = self.op, {}
        for row, column, x, d in ((0, 1, self.x, dw), (3, 4, self.low, du)):
            if row in of:
                w = self.block(at) if row == 0 else self.of_adapter(at)
                found[row] = op.cast(op.MatMul(op.swap_axes(d, 0, 1), w), self.wide)
            if column in of:
                found[column] = op.MatMul(d, x)
        return found

    def scores(self, at: Tensor | None, *, turned: bool = False, capped: bool = True) -> Tensor:
        """The scores of all rows for a block of classes, [N, block], or `turned` [block, N]."""
        op, w = self.op, self.block(at)
        pair = (w, op.swap_axes(self.x, 0, 1)) if turned else (self.x, op.swap_axes(w, 0, 1))
        u = op.cast(op.MatMul(*pair), self.wide)
        u = u if self.scale == 1 else u * self.scale
        if self.low is not None:
            up = self.of_adapter(at)
            pair = (up, op.swap_axes(self.low, 0, 1))
            pair = pair if turned else (self.low, op.swap_axes(up, 0, 1))
            u = u + op.cast(op.MatMul(*pair), self.wide)
        if self.bias is not None:
            bias = self.bias if at is None else op.Gather(self.bias, self._there(at))
            u = u + op.unsqueeze(op.cast(bias, self.wide), 1 if turned else 0)
        return self.capped(u)[0] if capped else u

    def scores_at(self, labels: Tensor) -> Tensor:
        """The score of each row for its label, [N]."""
        op = self.op
        w = op.cast(self.w.of(labels), self.wide)
        u = op.sum(op.cast(self.x, self.wide) * w, [1])
        u = u if self.scale == 1 else u * self.scale
        if self.low is not None:
            up = op.swap_axes(op.Gather(self.up, labels, axis=1), 0, 1)
            u = u + op.sum(op.cast(self.low, self.wide) * op.cast(up, self.wide), [1])
        if self.bias is not None:
            u = u + op.cast(op.Gather(self.bias, labels), self.wide)
        return self.capped(u)[0]

    def capped(self, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """`c · tanh(u / c)` and its slope, where there is a cap."""
        if not self.softcap:
            return u, None
        t = self.op.Tanh(u / self.softcap)
        return t * self.softcap, 1.0 - t * t

    def weights_of(self, weights: Tensor, at: Tensor | None) -> Tensor:
        """The weights of a block of classes in a sum over all, [block]."""
        found = weights if at is None else self.op.Gather(weights, self._there(at))
        return self.op.cast(found, self.wide)

    def masked(self, z: Tensor, at: Tensor | None, fill: float, *, axis: int) -> Tensor:
        """`z` with `fill` where the last block reaches beyond the classes along `axis`."""
        op = self.op
        if at is None or not self.overhangs:
            return z
        there = op.unsqueeze(op.Less(at, self.blocks.total), 1 - axis)
        return op.Where(there, z, op.constant(fill, z.dtype))

    @property
    def overhangs(self) -> bool:
        """Whether the last block reaches beyond the classes."""
        return self.blocks.count * self.blocks.size != self.blocks.total

    def _there(self, at: Tensor) -> Tensor:
        """Places of classes, the last in place of those beyond it."""
        if not self.overhangs:
            return at
        return self.op.Min(at, self.op.constant(self.blocks.total - 1, at.dtype))
