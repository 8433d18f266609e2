"""RNN: `h = f(W x + R h₋₁ + b)`, whose slope follows from Y."""

from __future__ import annotations

from gradtool.ops.recurrent.kernel_direction import slope
from gradtool.ops.recurrent.kernel_driver import Cell, register
from gradtool.ops.shared.types import Array


@register
class Rnn(Cell):
    """The only gate is the hidden state itself."""

    op, slab_gates, backward = "RNN", 1, ("s",)
    recomputes = False

    def step(self, a: Array) -> None:
        xp, new = self.xp, self.new
        xp.matmul(self.r, self.h, out=new)
        xp.add(new, a, out=new)
        if self.n.acts[self.d] == ("relu",):
            xp.maximum(new, 0, out=new)
        else:
            xp.tanh(new, out=new)

    def again(self) -> None:
        self.xp.copyto(self.buffers["slab"], self.track.swapaxes(1, 2))

    def back(self, t: int, dp: Array | None) -> None:  # noqa: ARG002 - it has no P
        """`da = dh · f'`,  `dh₋₁ = Rᵀ da`."""
        xp, da, s = self.xp, self.buffers["slab"][t], self.buffers["s"]
        slope(xp, self.n.acts[self.d][0], da, s)
        xp.multiply(s, self.new, out=da)
        if self.over is not None:
            xp.copyto(da, 0, where=self.over)
        self.pass_on(t)
