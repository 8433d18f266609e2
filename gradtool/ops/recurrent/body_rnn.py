"""The gradient of RNN in standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Tensor
from gradtool.ops.recurrent.body_driver import Cell, Given, register
from gradtool.ops.recurrent.body_shared import slope


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
