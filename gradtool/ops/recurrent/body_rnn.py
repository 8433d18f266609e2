"""The gradient of RNN in standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Tensor
from gradtool.operators.activations import resolve, slope
from gradtool.ops.recurrent.body_shared import (
    alive,
    before_each,
    directions,
    final_gradient,
    gate,
    gather_directions,
    masked,
    rows_product,
    state_shapes,
)

DEFAULT = ("Tanh",)


@composite("RNNGrad", shapes=state_shapes, outputs=5)
def rnn_grad(
    op: Builder, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, lens: Tensor | None,
    h0: Tensor | None, y: Tensor, dy: Tensor | None = None, dy_h: Tensor | None = None, *,
    activations: Sequence[str] | None = None, activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, clip: float | None = None,
    direction: str = "forward", hidden_size: int | None = None, layout: int = 0,
) -> list[Tensor]:  # fmt: skip
    """Gradients by X, W, R, B and the initial state: `da = dh · f'`,  `dh₋₁ = da R`.

    Every hidden state is in Y, so the slopes of all times are computed at once, and a Scan walks
    back.  A sample that has ended passes `dh` on.
    """
    sides = directions(op, direction, layout, x)
    acts = resolve(activations, activation_alpha, activation_beta, DEFAULT, len(sides))
    found = []
    for side, (act,) in zip(sides, acts, strict=True):
        x, wd, rd, bd = side.x, side.weight(w), side.weight(r), side.weight(b)
        live = alive(op, x, lens)
        track = side.track(y)
        zero = side.zeros(track)
        h_before = before_each(op, side, track, side.state(h0) or zero, live)
        if clip is None and act.from_value:
            bend = slope(op, act, track, track)
        else:
            a = op.MatMul(x, op.swap_axes(wd, 0, 1)) + op.MatMul(h_before, op.swap_axes(rd, 0, 1))
            if bd is not None:
                half = op.Split(bd, outputs=2, num_outputs=2, axis=0)
                a = a + (half[0] + half[1])
            bend = gate(op, act, clip, a)[1]
        dy_now = None if dy is None else masked(op, live, side.track(dy))
        rest = None if live is None else op.cast(op.Not(live), x.dtype)

        def back(states: Sequence[Tensor], now: Sequence[Any], rd: Tensor = rd) -> list[Tensor]:
            (dh,), (dy, bend, rest) = states, now
            if dy is not None:
                dh = dh + dy
            da = dh * bend
            passed = op.MatMul(da, rd)
            return [passed if rest is None else passed + dh * rest, da]

        start = final_gradient(op, side, dy_h, lens, zero)
        inputs = [dy_now, masked(op, live, bend), rest]
        dh, da = side.scan(back, [start], inputs, 1, reverse=True)
        total = op.sum(da, [0, 1])
        found.append([
            op.MatMul(da, wd), rows_product(op, da, x), rows_product(op, da, h_before),
            op.Concat(total, total, axis=0), dh,
        ])  # fmt: skip
    return gather_directions(op, layout, found, states=(4,))
