"""The gradient of GRU in standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Tensor
from gradtool.ops.recurrent.body_driver import Cell, Given, register
from gradtool.ops.recurrent.body_shared import rows_product, slope


@register
class Gru(Cell):
    """The gates of all times, then a Scan that walks back.

        dz = dh · (h₋₁ - hh) · z'      dhh = dh · (1 - z) · hh'
        dq = dhh · r,  dr = dhh · q · r',  dh₋₁ = dh · z + [dz, dr, dq] R    (linear_before_reset)
        ds = dhh Rₕ,   dr = ds · h₋₁ · r', dh₋₁ = dh · z + [dz, dr] Rzr + ds · r

    with `q = h₋₁ Rₕᵀ + Rbₕ`.  A sample that has ended passes `dh` on.
    """

    op, rows, passes = "GRU", 2, False

    def __init__(self, op: Builder, given: Given) -> None:
        super().__init__(op, given)
        self.hidden, linear = given.r.shape[1], given.linear
        hidden = self.hidden
        self.parts = op.Split(given.r, op.sizes([2 * hidden, hidden]), outputs=2, axis=0)
        a, link = op.MatMul(given.x, op.swap_axes(given.w, 0, 1)), None
        if given.b is not None:
            *parts, link = op.Split(
                given.b, op.sizes([3 * hidden, 2 * hidden, hidden]), outputs=3, axis=0
            )
            a = a + (parts[0] + op.Concat(parts[1], link * 0.0 if linear else link, axis=0))
        self.keep, self.q, self.slopes = self._slopes(a, link)

    def _slopes(self, a: Tensor, link: Tensor | None) -> tuple[Tensor, Tensor, list[Tensor]]:
        """For all times: z, q, and `dz / dh`, `dr / dhh` (or `dr / ds`), `dhh / dh`, r."""
        op, before, linear, hidden = self.emit, self.given.before, self.given.linear, self.hidden
        r_zr, r_h = self.parts
        a_zr, a_h = op.Split(a, op.sizes([2 * hidden, hidden]), outputs=2, axis=2)
        a_zr = a_zr + op.MatMul(before, op.swap_axes(r_zr, 0, 1))
        (z, slope_z), (reset, slope_r) = (
            (y := op.Sigmoid(v), slope(op, "sigmoid", y))
            for v in op.Split(a_zr, outputs=2, num_outputs=2, axis=2)
        )
        if linear:
            q = op.MatMul(before, op.swap_axes(r_h, 0, 1))
            q = q if link is None else q + link
            hh = op.Tanh(a_h + reset * q)
        else:
            q = reset * before
            hh = op.Tanh(a_h + op.MatMul(q, op.swap_axes(r_h, 0, 1)))
        slope_h = slope(op, "tanh", hh)
        dr = (q if linear else before) * slope_r
        return z, q, [(before - hh) * slope_z, dr, (1 - z) * slope_h, reset]

    def step(self, states: Sequence[Tensor], now: Sequence[Any]) -> list[Tensor]:
        op, (dh,), (dy, keep, _, dz, dr, dhh, reset) = self.emit, states, now
        if dy is not None:
            dh = dh + dy
        dhh = dh * dhh
        if self.given.linear:
            da = op.Concat(dh * dz, dhh * dr, dhh * reset, axis=1)
            return [dh * keep + op.MatMul(da, self.given.r), da, dhh]
        r_zr, r_h = self.parts
        ds = op.MatMul(dhh, r_h)
        da = op.Concat(dh * dz, ds * dr, axis=1)
        return [dh * keep + op.MatMul(da, r_zr) + ds * reset, da, dhh]

    def weights(self, *rows: Tensor) -> list[Tensor]:
        """Gradients by W, R and B, of the gates' gradients at all times."""
        op, given, linear, hidden, (da, dhh) = (
            self.emit, self.given, self.given.linear, self.hidden, rows
        )  # fmt: skip
        d_zr = op.Split(da, op.sizes([2 * hidden, hidden]), outputs=2, axis=2)[0] if linear else da
        da_w = op.Concat(d_zr, dhh, axis=2)
        if linear:
            d_weight = rows_product(op, da, given.before)
        else:
            zr, h = rows_product(op, d_zr, given.before), rows_product(op, dhh, self.q)
            d_weight = op.Concat(zr, h, axis=0)
        d_bias = op.Concat(op.sum(da_w, [0, 1]), op.sum(da if linear else da_w, [0, 1]), axis=0)
        return [op.MatMul(da_w, given.w), rows_product(op, da_w, given.x), d_weight, d_bias]
