"""The gradient of LSTM in standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Tensor
from gradtool.ops.recurrent.body_driver import Cell, Given, register
from gradtool.ops.recurrent.body_shared import bias_of, masked, slope


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
