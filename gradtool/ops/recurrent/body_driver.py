"""The driver of the gradients of recurrent operators in standard operators.

Every hidden state is in Y, so what a step back needs is computed for all times at once; a Scan
walks back, and weights and X get their gradients in one product each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Dims, Tensor
from gradtool.operators.recurrence import DIRECTIONS, activations_of
from gradtool.ops.recurrent.body_shared import (
    Direction,
    alive,
    before_each,
    directions,
    final_gradient,
    gather_directions,
    masked,
    padded,
    rows_product,
)


class Given(NamedTuple):
    """The operands of one direction, time first.

    `live` says by time and sample whether a sequence lasts, None without lengths; `track` and
    `before` are the hidden states after and before each time, `firsts` the initial states.
    """

    side: Direction
    x: Tensor
    w: Tensor
    r: Tensor
    b: Tensor | None
    p: Tensor | None
    live: Tensor | None
    track: Tensor
    before: Tensor
    firsts: Sequence[Tensor]
    acts: tuple[str, ...]
    linear: bool


class Cell:
    """The gate maths of one direction.

    Made for all times at once: `slopes`, and `keep`, the part of the gradient of the last state
    that a step passes as it is (None: it is not masked where a sample has ended).
    """

    op: ClassVar[str]
    states: ClassVar[int] = 1
    peepholes: ClassVar[bool] = False
    rows: ClassVar[int] = 1  # arrays that a step back gives
    passes: ClassVar[bool] = True  # a step gets which samples have ended
    keep: Tensor | None = None
    slopes: Sequence[Tensor] = ()

    def __init__(self, op: Builder, given: Given) -> None:
        self.emit, self.given = op, given

    def step(self, states: Sequence[Tensor], now: Sequence[Any]) -> Sequence[Tensor]:
        """One step back: gradients of the states before it, then of its pre-activations.

        `now` has of its time the gradient of Y, `keep`, which samples have ended, and the slopes.
        """
        raise NotImplementedError

    def weights(self, *rows: Tensor) -> list[Tensor]:
        """Gradients of X, W, R and B, from the arrays that the steps gave."""
        op, given, (da,) = self.emit, self.given, rows
        total = op.sum(da, [0, 1])
        dx, dw = op.MatMul(da, given.w), rows_product(op, da, given.x)
        return [dx, dw, rows_product(op, da, given.before), op.Concat(total, total, axis=0)]

    def peephole(self, da: Tensor) -> list[Tensor]:  # noqa: ARG002 - not every cell has P
        """The gradient of P, if there is one."""
        return []


def _gradients(
    cell: type[Cell], op: Builder, inputs: Sequence[Any], attributes: dict[str, Any]
) -> list[Tensor]:
    """Gradients by the operands of the forward node, lengths left out."""
    x, w, r, b, lens, *rest = padded(inputs, 13)
    firsts, rest = rest[: cell.states], rest[cell.states :]
    p = rest.pop(0) if cell.peepholes else None
    y, dy, *dlasts = rest[: 2 + cell.states]
    layout, direction = attributes.get("layout", 0), attributes.get("direction", "forward")
    found = []
    for side, acts in zip(
        directions(op, direction, layout, x), activations_of(cell.op, attributes), strict=True
    ):
        wd, rd, bd, pd = side.weight(w), side.weight(r), side.weight(b), side.weight(p)
        live, track = alive(op, side.x, lens), side.track(y)
        zero = side.zeros(track)
        states = [side.state(s) or zero for s in firsts]
        before = before_each(op, side, track, states[0], live)
        linear = bool(attributes.get("linear_before_reset", 0))
        one = cell(
            op, Given(side, side.x, wd, rd, bd, pd, live, track, before, states, acts, linear)
        )
        keep = None if one.keep is None else masked(op, live, one.keep, 1.0)
        slopes = [masked(op, live, v) for v in one.slopes]
        dy_now = None if dy is None else masked(op, live, side.track(dy))
        over = op.cast(op.Not(live), x.dtype) if cell.passes and live is not None else None
        starts = [final_gradient(op, side, d, lens, zero) for d in dlasts]
        made = [*side.scan(
            one.step, starts, [dy_now, keep, over, *slopes], cell.rows, reverse=True
        )]  # fmt: skip
        dfirsts, rows = made[: cell.states], made[cell.states :]
        found.append([*one.weights(*rows), *dfirsts, *one.peephole(rows[0])])
    return gather_directions(op, layout, found, states=range(4, 4 + cell.states))


def _shapes(cell: type[Cell], inputs: Sequence[Any], attributes: dict[str, Any]) -> Outputs:
    x, w, r = inputs[:3]
    hidden, layout = r.shape[2], attributes.get("layout", 0)
    both = len(DIRECTIONS[attributes.get("direction", "forward")])
    state = [x.shape[0], both, hidden] if layout else [both, x.shape[1], hidden]
    shapes: list[Dims] = [x.shape, w.shape, r.shape, [both, 2 * w.shape[1]]]
    shapes += [state] * cell.states + [[both, 3 * hidden]] * cell.peepholes
    return [(shape, x.dtype) for shape in shapes]


def register(cell: type[Cell]) -> type[Cell]:
    """Register the gradient of an operator by X, W, R, B, the initial states and, if given, P."""

    def body(op: Builder, *inputs: Tensor | None, **attributes: Any) -> list[Tensor]:
        return _gradients(cell, op, inputs, attributes)

    def shapes(*inputs: Any, **attributes: Any) -> Outputs:
        return _shapes(cell, inputs, attributes)

    body.__doc__, count = cell.__doc__, 4 + cell.states + cell.peepholes
    composite(f"{cell.op}Grad", shapes=shapes, outputs=count)(body)
    return cell
