"""The cell of LSTM, one time of one direction.  Gates lie in the order i, o, f, c."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradtool.operators.activations import Activation
from gradtool.operators.recurrence import Recurrence
from gradtool.ops.recurrent import kernel_shared as common
from gradtool.ops.recurrent.kernel_activations import activate, sigmoid
from gradtool.ops.shared.types import Array


class Cell:
    """Activates the gates of one time, and advances the cell state."""

    def __init__(
        self,
        xp: Any,
        n: Recurrence,
        direction: int,
        coupled: int,
        p: Array | None,
        buffers: Mapping[str, Array],
    ) -> None:
        self.xp, self.n, self.coupled = xp, n, coupled
        self.spare, self.flags = buffers["spare"], buffers.get("flags")
        self.f, self.g, self.h = n.acts[direction]
        self.plain = n.plain and (self.f.name, self.g.name) == ("sigmoid", "tanh")
        self.p = None if p is None else p[direction].reshape(3, n.hidden, 1)

    def advance(self, a: Array, c: Array, new: Array, slopes: Array | None = None) -> None:
        """From pre-activations `a` and cell state `c`: the gates, in place, and the `new` state.

        `slopes` gets those of the gates.
        """
        xp, n = self.xp, self.n
        i, o, f, g = (n.gate(a, k) for k in range(4))
        if self.p is not None:
            for gate, weight in ((i, self.p[0]), (f, self.p[2])):
                xp.multiply(c, weight, out=self.spare)
                xp.add(gate, self.spare, out=gate)
        fast = self.plain and self.p is None
        if fast:
            some = a[: 3 * n.hidden]
            xp.multiply(some, 0.5, out=some)
            xp.tanh(a, out=a)
            xp.multiply(some, 0.5, out=some)
            xp.add(some, 0.5, out=some)
        else:
            for k, act in ((0, self.f), (2, self.f), (3, self.g)):
                self.activate(act, n.gate(a, k), n.gate(slopes, k))
        if self.coupled:
            xp.subtract(1, i, out=f)
        xp.multiply(f, c, out=new)
        xp.multiply(i, g, out=self.spare)
        xp.add(new, self.spare, out=new)
        if self.p is not None:
            xp.multiply(new, self.p[1], out=self.spare)
            xp.add(o, self.spare, out=o)
        if not fast:
            self.activate(self.f, o, n.gate(slopes, 1))

    def activate(self, act: Activation, a: Array, d: Array | None) -> None:
        if self.plain and act.name == "sigmoid":
            sigmoid(self.xp, a)
        else:
            activate(self.xp, act, self.n.clip, a, d, self.spare, self.flags)

    def shown(self, c: Array, y: Array, d: Array | None = None) -> None:
        """`y = h(c)`, and its slope in `d`."""
        xp = self.xp
        if self.h.name == "tanh":
            xp.tanh(c, out=y)
            if d is not None:
                xp.multiply(y, y, out=d)
                xp.subtract(1, d, out=d)
            return
        xp.copyto(y, c)
        activate(xp, self.h, None, y, d, self.spare, self.flags)

    def slope(self, k: int, y: Array, slopes: Array | None, out: Array) -> Array:
        """The slope of gate `k` of value `y`."""
        act = self.g if k == 3 else self.f
        return common.slope(self.xp, act, y, self.n.gate(slopes, k), out)
