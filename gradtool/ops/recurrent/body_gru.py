"""The gradient of GRU in standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Tensor
from gradtool.operators.activations import Activation, resolve
from gradtool.ops.recurrent.body_shared import (
    Step,
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

DEFAULT = ("Sigmoid", "Tanh")


@composite("GRUGrad", shapes=state_shapes, outputs=5)
def gru_grad(
    op: Builder, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, lens: Tensor | None,
    h0: Tensor | None, y: Tensor, dy: Tensor | None = None, dy_h: Tensor | None = None, *,
    activations: Sequence[str] | None = None, activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, clip: float | None = None,
    direction: str = "forward", hidden_size: int | None = None, layout: int = 0,
    linear_before_reset: int = 0,
) -> list[Tensor]:  # fmt: skip
    """Gradients by X, W, R, B and the initial state.

    Every hidden state is in Y, so the gates of all times are computed at once; a Scan walks back:

        dz = dh · (h₋₁ - hh) · z'          dhh = dh · (1 - z) · hh'
        dq = dhh · r,  dr = dhh · q · r',  dh₋₁ = dh · z + [dz, dr, dq] R    (linear_before_reset)
        ds = dhh Rₕ,   dr = ds · h₋₁ · r', dh₋₁ = dh · z + [dz, dr] Rzr + ds · r

    with `q = h₋₁ Rₕᵀ + Rbₕ`.  A sample that has ended passes `dh` on.
    """
    sides = directions(op, direction, layout, x)
    acts = resolve(activations, activation_alpha, activation_beta, DEFAULT, len(sides))
    hidden, linear = r.shape[2], linear_before_reset
    found = []
    for side, chosen in zip(sides, acts, strict=True):
        x, wd, rd, bd = side.x, side.weight(w), side.weight(r), side.weight(b)
        live, track = alive(op, x, lens), side.track(y)
        zero = side.zeros(track)
        h_before = before_each(op, side, track, side.state(h0) or zero, live)
        weights = op.Split(rd, op.sizes([2 * hidden, hidden]), outputs=2, axis=0)
        a, link = op.MatMul(x, op.swap_axes(wd, 0, 1)), None
        if bd is not None:
            *parts, link = op.Split(
                bd, op.sizes([3 * hidden, 2 * hidden, hidden]), outputs=3, axis=0
            )
            a = a + (parts[0] + op.Concat(parts[1], link * 0.0 if linear else link, axis=0))
        keep, q, slopes = _slopes(op, chosen, clip, linear, weights, a, link, h_before)

        keep, slopes = masked(op, live, keep, 1.0), [masked(op, live, v) for v in slopes]
        dy_now = None if dy is None else masked(op, live, side.track(dy))
        start = final_gradient(op, side, dy_h, lens, zero)
        walk = _linked(op, rd) if linear else _direct(op, *weights)
        dh, da, dhh = side.scan(walk, [start], [dy_now, keep, *slopes], 2, reverse=True)

        d_zr = op.Split(da, op.sizes([2 * hidden, hidden]), outputs=2, axis=2)[0] if linear else da
        da_w = op.Concat(d_zr, dhh, axis=2)
        if linear:
            d_weight = rows_product(op, da, h_before)
        else:
            zr_weight, h_weight = rows_product(op, d_zr, h_before), rows_product(op, dhh, q)
            d_weight = op.Concat(zr_weight, h_weight, axis=0)
        d_bias = op.Concat(op.sum(da_w, [0, 1]), op.sum(da if linear else da_w, [0, 1]), axis=0)
        found.append([op.MatMul(da_w, wd), rows_product(op, da_w, x), d_weight, d_bias, dh])
    return gather_directions(op, layout, found, states=(4,))


def _slopes(
    op: Builder,
    acts: Sequence[Activation],
    clip: float | None,
    linear: int,
    weights: Tensor,
    a: Tensor,
    link: Tensor | None,
    h_before: Tensor,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """For all times: z, q, and `dz / dh`, `dr / dhh` (or `dr / ds`), `dhh / dh`, r."""
    (act_f, act_g), (r_zr, r_h) = acts, weights
    hidden = r_h.shape[1]
    a_zr, a_h = op.Split(a, op.sizes([2 * hidden, hidden]), outputs=2, axis=2)
    a_zr = a_zr + op.MatMul(h_before, op.swap_axes(r_zr, 0, 1))
    a_z, a_r = op.Split(a_zr, outputs=2, num_outputs=2, axis=2)
    (z, slope_z), (reset, slope_r) = (gate(op, act_f, clip, v) for v in (a_z, a_r))
    if linear:
        q = op.MatMul(h_before, op.swap_axes(r_h, 0, 1))
        q = q if link is None else q + link
        hh, slope_h = gate(op, act_g, clip, a_h + reset * q)
    else:
        q = reset * h_before
        hh, slope_h = gate(op, act_g, clip, a_h + op.MatMul(q, op.swap_axes(r_h, 0, 1)))
    dr = (q if linear else h_before) * slope_r
    return z, q, [(h_before - hh) * slope_z, dr, (1 - z) * slope_h, reset]


def _linked(op: Builder, r: Tensor) -> Step:
    """One step back in time, where the reset comes after the product with R."""

    def step(states: Sequence[Tensor], now: Sequence[Any]) -> list[Tensor]:
        (dh,), (dy, keep, dz, dr, dhh, reset) = states, now
        if dy is not None:
            dh = dh + dy
        dhh = dh * dhh
        da = op.Concat(dh * dz, dhh * dr, dhh * reset, axis=1)
        return [dh * keep + op.MatMul(da, r), da, dhh]

    return step


def _direct(op: Builder, r_zr: Tensor, r_h: Tensor) -> Step:
    """One step back in time, where the reset comes before the product with R."""

    def step(states: Sequence[Tensor], now: Sequence[Any]) -> list[Tensor]:
        (dh,), (dy, keep, dz, dr, dhh, reset) = states, now
        if dy is not None:
            dh = dh + dy
        dhh = dh * dhh
        ds = op.MatMul(dhh, r_h)
        da = op.Concat(dh * dz, ds * dr, axis=1)
        return [dh * keep + op.MatMul(da, r_zr) + ds * reset, da, dhh]

    return step
