"""The gradients of GRU, RNN and LSTM in standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Tensor
from gradtool.ops.recurrent.body_driver import Cell, Given, register
from gradtool.ops.recurrent.body_shared import bias_of, masked, rows_product, slope


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


@register
class Rnn(Cell):
    """`da = dh · f'`,  `dh₋₁ = da R`; the slope follows from Y."""

    op = "RNN"

    def __init__(self, op: Builder, given: Given) -> None:
        super().__init__(op, given)
        self.slopes = [slope(op, given.acts[0], given.track)]

    def step(self, states: Sequence[Tensor], now: Sequence[Any]) -> list[Tensor]:
        (dh,), (dy, _, rest, bend) = states, now
        if dy is not None:
            dh = dh + dy
        da = dh * bend
        passed = self.emit.MatMul(da, self.given.r)
        return [passed if rest is None else passed + dh * rest, da]


@register
class Lstm(Cell):
    """A first Scan gives the cell states of all times, the second one walks back.

        do = dh · tanh(c) · o'          dc += dh · o · tanh'(c)
        di = dc · g · i'                df = dc · c₋₁ · f'           dg = dc · i · g'
        dc₋₁ = dc · f                   dh₋₁ = [di, do, df, dg] R

    What flows through peepholes is added; a sample that has ended passes `dh` and `dc` on.
    """

    op, states, peepholes = "LSTM", 2, True

    def __init__(self, op: Builder, given: Given) -> None:
        super().__init__(op, given)
        p, first = given.p, given.firsts[1]
        self.peeps = None if p is None else op.Split(p, outputs=3, num_outputs=3, axis=0)
        a = op.MatMul(given.x, op.swap_axes(given.w, 0, 1))
        a = a + op.MatMul(given.before, op.swap_axes(given.r, 0, 1))
        if given.b is not None:
            a = a + bias_of(op, given.b)
        gates = op.Split(a, outputs=4, num_outputs=4, axis=2)
        self.c = self._cells(first, gates)
        self.c_before = given.side.before(self.c, first)
        self.keep, self.slopes = self._slopes(gates)

    def _slopes(self, gates: Tensor) -> tuple[Tensor, list[Tensor]]:
        """For all times: f, and `di / dc`, `do / dh`, `df / dc`, `dg / dc`, `dc / dh`."""
        op, peeps, c, before, (ai, ao, af, ag) = self.emit, self.peeps, self.c, self.c_before, gates
        if peeps is not None:
            ai, af, ao = ai + before * peeps[0], af + before * peeps[2], ao + c * peeps[1]
        (i, di), (o, do), (g, dg), (hc, dhc), (f, df) = (
            (y := emit(v), slope(op, act, y))
            for emit, act, v in (
                (op.Sigmoid, "sigmoid", ai), (op.Sigmoid, "sigmoid", ao), (op.Tanh, "tanh", ag),
                (op.Tanh, "tanh", c), (op.Sigmoid, "sigmoid", af),
            )
        )  # fmt: skip
        return f, [g * di, hc * do, before * df, i * dg, o * dhc]

    def step(self, states: Sequence[Tensor], now: Sequence[Any]) -> list[Tensor]:
        """Gradients of one time: by the states before, and by the gates."""
        op, peeps, (dh, dc), (dy, keep, rest, *slopes) = self.emit, self.peeps, states, now
        if dy is not None:
            dh = dh + dy
        do = dh * slopes[1]
        dc = dc + dh * slopes[4]
        if peeps is not None:
            dc = dc + do * peeps[1]
        di, dg, df = dc * slopes[0], dc * slopes[3], dc * slopes[2]
        da = op.Concat(di, do, df, dg, axis=1)
        dc = dc * keep
        if peeps is not None:
            dc = dc + di * peeps[0] + df * peeps[2]
        passed = op.MatMul(da, self.given.r)
        return [passed if rest is None else passed + dh * rest, dc, da]

    def peephole(self, da: Tensor) -> list[Tensor]:
        op = self.emit
        if self.peeps is None:
            return []
        di, do, df, _ = op.Split(da, outputs=4, num_outputs=4, axis=2)
        terms = (di * self.c_before, do * self.c, df * self.c_before)
        return [op.Concat(*(op.sum(v, [0, 1]) for v in terms), axis=0)]

    def _cells(self, first: Tensor, gates: Tensor) -> Tensor:
        """The cell state after each time."""
        op, live, (ai, _, af, ag) = self.emit, self.given.live, gates
        scan = self.given.side.scan
        if self.peeps is not None:
            p_i, _, p_f = self.peeps

            def step(states: Sequence[Tensor], now: Sequence[Any]) -> list[Tensor]:
                (c,), (ai, af, ag, live) = states, now
                ai, af = ai + c * p_i, af + c * p_f
                i = op.Sigmoid(ai)
                new = op.Sigmoid(af) * c + i * op.Tanh(ag)
                new = new if live is None else op.Where(live, new, c)
                return [new, op.Identity(new)]

            return scan(step, [first], [ai, af, ag, live], 1, reverse=False)[1]

        def plain(states: Sequence[Tensor], now: Sequence[Any]) -> list[Tensor]:
            (c,), (f, ig) = states, now
            new = f * c + ig
            return [new, op.Identity(new)]

        i, f = op.Sigmoid(ai), op.Sigmoid(af)
        ig = i * op.Tanh(ag)
        inputs = [masked(op, live, f, 1.0), masked(op, live, ig)]
        return scan(plain, [first], inputs, 1, reverse=False)[1]
