"""The gradient of LSTM in standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Dims, Tensor
from gradtool.operators.activations import Activation, resolve
from gradtool.ops.recurrent.body_shared import (
    Direction,
    Step,
    alive,
    before_each,
    directions,
    final_gradient,
    gate,
    gate_value,
    gather_directions,
    masked,
    rows_product,
)

DEFAULT = ("Sigmoid", "Tanh", "Tanh")


def _shapes(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    lens: Tensor | None,
    h0: Tensor | None,
    c0: Tensor | None,
    p: Tensor | None,
    y: Tensor,
    *dys: Tensor | None,
    layout: int = 0,
    direction: str = "forward",
    **attributes: Any,
) -> Outputs:
    both, hidden = (2 if direction == "bidirectional" else 1), r.shape[2]
    state = [x.shape[0], both, hidden] if layout else [both, x.shape[1], hidden]
    shapes: list[Dims] = [x.shape, w.shape, r.shape, [both, 8 * hidden], state, state]
    return [(shape, x.dtype) for shape in (*shapes, [both, 3 * hidden])]


@composite("LSTMGrad", shapes=_shapes, outputs=7)
def lstm_grad(
    op: Builder, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, lens: Tensor | None,
    h0: Tensor | None, c0: Tensor | None, p: Tensor | None, y: Tensor, dy: Tensor | None = None,
    dy_h: Tensor | None = None, dy_c: Tensor | None = None, *,
    activations: Sequence[str] | None = None, activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, clip: float | None = None,
    direction: str = "forward", hidden_size: int | None = None, input_forget: int = 0,
    layout: int = 0,
) -> list[Tensor]:  # fmt: skip
    """Gradients by X, W, R, B, the initial states and, if there is one, P.

    Every hidden state is in Y, so the gates of all times are computed at once; a first Scan gives
    the cell states, a second one walks back:

        do = dh · h(c) · o'             dc += dh · o · h'(c)
        di = dc · g · i'                df = dc · c₋₁ · f'           dg = dc · i · g'
        dc₋₁ = dc · f                   dh₋₁ = [di, do, df, dg] R

    and W, R, X get their gradients in one product each.  What flows through peepholes is added;
    a sample that has ended passes `dh` and `dc` on.
    """
    sides = directions(op, direction, layout, x)
    acts = resolve(activations, activation_alpha, activation_beta, DEFAULT, len(sides))
    found = []
    for side, chosen in zip(sides, acts, strict=True):
        x, wd, rd = side.x, side.weight(w), side.weight(r)
        bd, pd = side.weight(b), side.weight(p)
        live, track = alive(op, x, lens), side.track(y)
        zero = side.zeros(track)
        firsts = side.state(h0) or zero, side.state(c0) or zero
        h_before = before_each(op, side, track, firsts[0], live)
        peeps = None if pd is None else op.Split(pd, outputs=3, num_outputs=3, axis=0)

        a = op.MatMul(x, op.swap_axes(wd, 0, 1)) + op.MatMul(h_before, op.swap_axes(rd, 0, 1))
        if bd is not None:
            half = op.Split(bd, outputs=2, num_outputs=2, axis=0)
            a = a + (half[0] + half[1])
        gates = op.Split(a, outputs=4, num_outputs=4, axis=2)
        c = _cells(op, side, chosen, clip, input_forget, peeps, firsts[1], live, gates)
        c_before = side.before(c, firsts[1])
        keep, slopes = _slopes(op, chosen, clip, input_forget, peeps, gates, c, c_before)

        keep, slopes = masked(op, live, keep, 1.0), [masked(op, live, v) for v in slopes]
        dy_now = None if dy is None else masked(op, live, side.track(dy))
        rest = None if live is None else op.cast(op.Not(live), x.dtype)
        starts = [final_gradient(op, side, d, lens, zero) for d in (dy_h, dy_c)]
        inputs = [dy_now, keep, rest, *slopes]
        dh, dc, da = side.scan(_walk(op, peeps, rd), starts, inputs, 1, reverse=True)

        total = op.sum(da, [0, 1])
        results = [op.MatMul(da, wd), rows_product(op, da, x), rows_product(op, da, h_before)]
        results += [op.Concat(total, total, axis=0), dh, dc]
        if p is not None:
            di, do, df, _ = op.Split(da, outputs=4, num_outputs=4, axis=2)
            terms = (di * c_before, do * c, df * c_before)
            results.append(op.Concat(*(op.sum(v, [0, 1]) for v in terms), axis=0))
        found.append(results)
    return gather_directions(op, layout, found, states=(4, 5))


def _slopes(
    op: Builder,
    acts: Sequence[Activation],
    clip: float | None,
    coupled: int,
    peeps: Tensor | None,
    gates: Tensor,
    c: Tensor,
    c_before: Tensor,
) -> tuple[Tensor, list[Tensor]]:
    """For all times: f, and `di / dc`, `do / dh`, `df / dc`, `dg / dc`, `dc / dh`.

    `df` is missing if the gates i and f are coupled.
    """
    (ai, ao, af, ag), (act_f, act_g, act_h) = gates, acts
    if peeps is not None:
        ai, af, ao = ai + c_before * peeps[0], af + c_before * peeps[2], ao + c * peeps[1]
    (i, di), (o, do) = gate(op, act_f, clip, ai), gate(op, act_f, clip, ao)
    (g, dg), (hc, dhc) = gate(op, act_g, clip, ag), gate(op, act_h, None, c)
    if coupled:
        return 1 - i, [(g - c_before) * di, hc * do, i * dg, o * dhc]
    f, df = gate(op, act_f, clip, af)
    return f, [g * di, hc * do, c_before * df, i * dg, o * dhc]


def _walk(op: Builder, peeps: Tensor | None, r: Tensor) -> Step:
    """One step back in time."""

    def step(states: Sequence[Tensor], now: Sequence[Any]) -> list[Tensor]:
        """The gradients of the states before a step, from those after it, and of its gates."""
        (dh, dc), (dy, keep, rest, *slopes) = states, now
        if dy is not None:
            dh = dh + dy
        do = dh * slopes[1]
        dc = dc + dh * slopes[-1]
        if peeps is not None:
            dc = dc + do * peeps[1]
        di, dg = dc * slopes[0], dc * slopes[-2]
        df = di * 0.0 if len(slopes) == 4 else dc * slopes[2]
        da = op.Concat(di, do, df, dg, axis=1)
        dc = dc * keep
        if peeps is not None:
            dc = dc + di * peeps[0] + df * peeps[2]
        passed = op.MatMul(da, r)
        return [passed if rest is None else passed + dh * rest, dc, da]

    return step


def _cells(
    op: Builder,
    side: Direction,
    acts: Sequence[Activation],
    clip: float | None,
    coupled: int,
    peeps: Tensor | None,
    first: Tensor,
    live: Tensor | None,
    gates: Tensor,
) -> Tensor:
    """The cell state after each time."""
    (act_f, act_g, _), (ai, _, af, ag) = acts, gates

    def step(states: Sequence[Tensor], now: Sequence[Any]) -> list[Tensor]:
        (c,), (ai, af, ag, live) = states, now
        if peeps is not None:
            ai, af = ai + c * peeps[0], af + c * peeps[2]
        i = gate_value(op, act_f, clip, ai)
        f = 1 - i if coupled else gate_value(op, act_f, clip, af)
        new = f * c + i * gate_value(op, act_g, clip, ag)
        new = new if live is None else op.Where(live, new, c)
        return [new, op.Identity(new)]

    def plain(states: Sequence[Tensor], now: Sequence[Any]) -> list[Tensor]:
        (c,), (f, ig) = states, now
        new = f * c + ig
        return [new, op.Identity(new)]

    if peeps is not None:
        return side.scan(step, [first], [ai, af, ag, live], 1, reverse=False)[1]
    i = gate_value(op, act_f, clip, ai)
    f = 1 - i if coupled else gate_value(op, act_f, clip, af)
    ig = i * gate_value(op, act_g, clip, ag)
    inputs = [masked(op, live, f, 1.0), masked(op, live, ig)]
    return side.scan(plain, [first], inputs, 1, reverse=False)[1]
