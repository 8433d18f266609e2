"""The driver of recurrent kernels: buffers, directions, time loops, lengths.

A `Cell` has the gate maths of one operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, update_wrapper
from typing import Any, ClassVar

from gradtool.graph.specs import Spec
from gradtool.operators.recurrence import Recurrence, recurrence
from gradtool.ops.kernels import kernel
from gradtool.ops.recurrent.kernel_direction import Direction, Operands
from gradtool.ops.shared.types import Array, Arrays
from gradtool.ops.shared.upcast import widened

LINEAR = "linear_before_reset"


class Cell(Direction):
    """The gate maths of one direction.

    Of the buffers `h` is the hidden state and `new` the next one.  In the gradient `slab` has the
    gates of all times, which the walk backwards replaces by the gradients of their pre-activations;
    `dh` is the gradient of the state that a step leaves to the next, `new` that of the state it
    makes.
    """

    op: ClassVar[str]
    states: ClassVar[tuple[str, ...]] = ("h",)
    gradients: ClassVar[tuple[str, ...]] = ("dh",)
    peepholes: ClassVar[bool] = False
    slab_gates: ClassVar[int]
    forward: ClassVar[tuple[str, ...]] = ()  # further buffers of the size of a state
    backward: ClassVar[tuple[str, ...]]
    recomputes: ClassVar[bool] = True  # whether the gradient takes products with X again

    def step(self, a: Array) -> None:
        """`new` from `h` and the products `a` with X; other states advance, unless ended."""
        raise NotImplementedError

    def again(self) -> None:
        """Fill the slab, from X, the hidden states and the weights."""
        raise NotImplementedError

    def back(self, t: int, dp: Array | None) -> None:
        """Walk over time `t`; that adds to `dp`, the gradient of P."""
        raise NotImplementedError

    def pass_on(self, t: int) -> None:
        """`dh = Rᵀ da`; of ended samples it passes."""
        xp, da, dh, new = self.xp, self.buffers["slab"], self.buffers["dh"], self.new
        xp.matmul(self.r.T, da[t], out=dh if self.over is None else new)
        if self.over is not None:
            xp.add(dh, new, out=dh)


def _operands(cell: type[Cell], inputs: Sequence[Any]) -> tuple[Operands, list[Any]]:
    """The operands of the forward node, and those its gradient adds: Y, dY, final states."""
    x, w, r, b, lens, *rest = (*inputs, *(None,) * 13)
    firsts, rest = rest[: len(cell.states)], rest[len(cell.states) :]
    p = rest.pop(0) if cell.peepholes else None
    return Operands(x, w, r, b, lens, firsts, p), rest


def _room(
    cell: type[Cell], given: Operands, attributes: Mapping[str, Any], *, backward: bool,
    out: Sequence[Any],
) -> tuple[Recurrence, dict[str, Spec]]:  # fmt: skip
    """Sizes, and buffers by name."""
    n = recurrence(cell.op, given.x, given.r, attributes)
    size, state, recomputes = n.many * n.batch, (n.hidden, n.batch), True
    if backward:
        rows, recomputes = cell.slab_gates * n.hidden, cell.recomputes
        shapes: dict[str, tuple[int, ...]] = {
            "slab": (n.times, rows, n.batch),
            "before": (size * n.hidden,),
            "gathered": (size * rows,),
            "linked": (max(size * n.rows, size * n.inputs, n.inputs, n.hidden),),
        }
        if "c" in cell.states:
            shapes["cells"] = (n.times + 1, *state)
        shapes |= dict.fromkeys((*cell.gradients, "new", *cell.backward), state)
    else:
        shapes = {"gates": (n.rows, n.batch)} if n.gates > 1 else {}
        shapes |= dict.fromkeys((*cell.states, "new", *cell.forward), state)
    if recomputes:
        shapes = {"bias": (n.rows,)} | shapes if given.b is not None else shapes
        shapes["chunk"] = (size * n.rows,)
    if n.layout and (recomputes or out[1] is not None):  # a gradient by W reads X
        shapes["x"] = (size, n.inputs)
    return n, {name: Spec(shape, given.x.dtype) for name, shape in shapes.items()}


def _work(
    cell: type[Cell], *inputs: Any, out: Sequence[Spec | None], backward: bool, **attributes: Any
) -> list[Spec]:
    """The buffers of a call."""
    return list(
        _room(cell, _operands(cell, inputs)[0], attributes, backward=backward, out=out)[1].values()
    )


def _forward(
    cell: type[Cell], xp: Any, *inputs: Array, out: Arrays, work: Arrays, **attributes: Any
) -> None:
    """`(Y, Y_h)`, and `Y_c` of LSTM; the products with W are taken for several times at once."""
    given, _ = _operands(cell, inputs)
    n, room = _room(cell, given, attributes, backward=False, out=out)
    buffers = dict(zip(room, work, strict=True))
    y, *lasts = (*out, *(None,) * 3)[: 1 + len(cell.states)]
    for d in range(len(n.backwards)):
        one = cell(xp, n, d, given, buffers, linear=bool(attributes.get(LINEAR)))
        for name, first in zip(cell.states, given.firsts, strict=True):
            one.set_state(name, first)
        track, order = n.track(y, d), n.order(d)
        for start in range(0, n.times, n.many):
            part = order[start : start + n.many]
            low = min(part)
            a = one.projected(slice(low, low + len(part)))
            for t in part:
                one.take_time(t)
                one.step(a[:, t - low])
                one.advance(None if track is None else track[t])
        for name, last in zip(cell.states, lasts, strict=True):
            one.show_state(name, last)
            one.zero_empty(n.state(last, d))


def _backward(
    cell: type[Cell], xp: Any, *inputs: Array, out: Arrays, work: Arrays, **attributes: Any
) -> None:
    """Gradients by X, W, R, B, the initial states and P, from Y and its gradients.

    The gates of all times are computed again (Y holds every hidden state), the walk backwards
    replaces them by the gradients of their pre-activations, and one product of these with X, and
    one with the hidden states, makes the gradients of weights.
    """
    given, rest = _operands(cell, inputs)
    n, room = _room(cell, given, attributes, backward=True, out=out)
    buffers = dict(zip(room, work, strict=True))
    y, dy, *dlasts = rest[: 2 + len(cell.states)]
    dx, dw, dr, db, *dfirsts = (*out, *(None,) * 7)[: 4 + len(cell.states)]
    dp = out[6] if given.p is not None and len(out) > 6 else None
    for d in range(len(n.backwards)):
        one = cell(xp, n, d, given, buffers, linear=bool(attributes.get(LINEAR)), y=y)
        one.again()
        if dp is not None:
            dp[d] = 0
        for name, last in zip(cell.gradients, dlasts, strict=True):
            one.set_state(name, last)
            one.zero_empty(buffers[name])
        dys = n.track(dy, d)
        for t in reversed(n.order(d)):
            one.take_time(t)
            one.arrive(None if dys is None else dys[t])
            one.back(t, None if dp is None else dp[d])
        one.weight_gradients(dx, *(None if a is None else a[d] for a in (dw, dr)))
        if db is not None:
            one.bias_gradient(db[d])
        for name, first in zip(cell.gradients, dfirsts, strict=True):
            one.show_state(name, first)


def register(cell: type[Cell]) -> type[Cell]:
    """Register the kernels of an operator and of its gradient."""
    for name, function, backward in (
        (cell.op, _forward, False),
        (f"ai.gradtool::{cell.op}Grad", _backward, True),
    ):
        run, space = widened(
            update_wrapper(partial(function, cell), function),
            partial(_work, cell, backward=backward),
        )
        kernel(name, work=space)(run)
    return cell
