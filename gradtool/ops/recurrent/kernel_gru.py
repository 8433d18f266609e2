"""GRU: gates lie in the order z, r, h in the rows of W and R."""

from __future__ import annotations

from typing import Any

from gradtool.ops.recurrent.kernel_direction import sigmoid, slope
from gradtool.ops.recurrent.kernel_driver import Cell, register
from gradtool.ops.shared.types import Array


@register
class Gru(Cell):
    """`h = (h₋₁ - hh) z + hh`.

    The slab has, as a fourth part, `q`: `Rₕ h₋₁ + Rbₕ` if the reset comes after the product
    (`linear`), else `r · h₋₁`; the walk backwards replaces the former by its gradient.
    """

    op, slab_gates, backward = "GRU", 4, ("s", "q", "kept")

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        size, b = self.n.hidden, self.given.b
        self.inner = b[self.d, 5 * size :, None] if self.linear and b is not None else None
        self.count = 3 * size if self.linear else 2 * size  # rows of R that meet the state as it is

    def step(self, a: Array) -> None:
        """The state after one time, from the products of X in `a`."""
        xp, r, count, size = self.xp, self.r, self.count, self.n.hidden
        gates, h, new = self.buffers["gates"], self.h, self.new
        z, reset, hh = (self.n.gate(gates, k) for k in range(3))
        both = gates[: 2 * size]
        xp.matmul(r[:count], h, out=gates[:count])
        xp.add(both, a[: 2 * size], out=both)
        sigmoid(xp, both)
        if self.linear:
            if self.inner is not None:
                xp.add(hh, self.inner, out=hh)
            xp.multiply(hh, reset, out=hh)
        else:
            xp.multiply(h, reset, out=new)
            xp.matmul(r[2 * size :], new, out=hh)
        xp.add(hh, a[2 * size :], out=hh)
        xp.tanh(hh, out=hh)
        xp.subtract(h, hh, out=new)
        xp.multiply(new, z, out=new)
        xp.add(new, hh, out=new)

    def again(self) -> None:
        """Compute the gates of all times again, into the slab."""
        xp, n, r, size = self.xp, self.n, self.r, self.n.hidden
        slab, s = self.buffers["slab"], self.buffers["s"]
        for times in n.chunks():
            a, before = self.projected(times).swapaxes(0, 1), self.before(times)
            linked = self.linked(before, self.count)
            xp.add(a[:, : 2 * size], linked[:, : 2 * size], out=slab[times, : 2 * size])
            xp.copyto(slab[times, 2 * size : 3 * size], a[:, 2 * size :])
            if self.linear:
                xp.copyto(slab[times, 3 * size :], linked[:, 2 * size :])
            for t in range(times.start, times.stop):
                _, reset, hh, q = (n.gate(slab[t], k) for k in range(4))
                sigmoid(xp, slab[t, : 2 * size])
                if self.linear:
                    if self.inner is not None:
                        xp.add(q, self.inner, out=q)
                    xp.multiply(q, reset, out=s)
                else:
                    xp.multiply(before[t - times.start].T, reset, out=q)
                    xp.matmul(r[2 * size :], q, out=s)
                xp.add(hh, s, out=hh)
                xp.tanh(hh, out=hh)

    def back(self, t: int, dp: Array | None) -> None:  # noqa: ARG002 - it has no P
        """Replace the gates at one time.

        dz = dh · (h₋₁ - hh) · z'   dhh = dh · (1 - z) · hh'
        linear:  dq = dhh · r       dr = dhh · q · r'      dh₋₁ = dh · z + Rᵀ [dz, dr, dq]
        else:    ds = Rₕᵀ dhh       dr = ds · h₋₁ · r'     dh₋₁ = dh · z + Rᵀ [dz, dr] + ds · r
        """
        xp, r, size, new = self.xp, self.r, self.n.hidden, self.new
        slab, dh, s, bend, kept = (self.buffers[name] for name in ("slab", "dh", "s", "q", "kept"))
        z, reset, hh, q = (self.n.gate(slab[t], k) for k in range(4))
        before = self.before(slice(t, t + 1))[0].T

        xp.multiply(new, z, out=kept)
        xp.subtract(before, hh, out=s)
        xp.multiply(s, new, out=s)
        xp.subtract(1, z, out=bend)
        xp.multiply(new, bend, out=new)
        xp.multiply(s, slope(xp, "sigmoid", z, bend), out=z)
        xp.multiply(new, slope(xp, "tanh", hh, bend), out=hh)
        slope(xp, "sigmoid", reset, bend)
        if self.linear:
            xp.multiply(hh, q, out=s)
            xp.multiply(hh, reset, out=q)
            xp.multiply(s, bend, out=reset)
            xp.matmul(r[2 * size :].T, q, out=new)
        else:
            xp.matmul(r[2 * size :].T, hh, out=new)
            xp.multiply(new, before, out=s)
            xp.multiply(new, reset, out=new)
            xp.multiply(s, bend, out=reset)
        xp.add(kept, new, out=kept)
        xp.matmul(r[: 2 * size].T, slab[t, : 2 * size], out=new)
        xp.add(kept, new, out=kept)
        if self.over is None:
            xp.copyto(dh, kept)
        else:
            xp.copyto(slab[t], 0, where=self.over)
            xp.copyto(kept, 0, where=self.over)
            xp.add(dh, kept, out=dh)

    def add_weights(self, da: Array, before: Array, dr: Array, *, first: bool) -> None:
        size = self.n.hidden
        self.add(da[: 2 * size], before, dr[: 2 * size], first=first)
        if self.linear:
            self.add(da[3 * size :], before, dr[2 * size :], first=first)
        else:
            self.add(da[2 * size : 3 * size], da[3 * size :].T, dr[2 * size :], first=first)
