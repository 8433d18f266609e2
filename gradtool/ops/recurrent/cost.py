"""Recurrent operators: products with W and R for every time, and the functions of each gate.

`cell` is the number of elements of a state at all times and in all directions: T · B · H · D.
"""

from __future__ import annotations

from typing import Any

from gradtool.operators.recurrence import Recurrence, recurrence
from gradtool.ops.costs import cost
from gradtool.ops.elementwise import cost_formulas as counts
from gradtool.ops.shared.element_counts import Results, Shaped, wanted

# Operations per element of an activation, and of its slope.
ACTIVATIONS = {"relu": (1, 1), "sigmoid": (counts.of("Sigmoid"), 2), "tanh": (1, 2)}


class Counts:
    """The parts of the count of one node."""

    def __init__(
        self, op: str, x: Shaped, r: Shaped, uses: tuple[int, ...], attributes: dict[str, Any]
    ) -> None:
        """`uses` says how many gates have each activation."""
        self.n: Recurrence = recurrence(op, x, r, attributes)
        n = self.n
        self.linear = bool(attributes.get("linear_before_reset", 0))
        self.state = n.times * n.batch * n.hidden
        self.cell = self.state * len(n.acts)
        self.rows = n.gates * self.cell  # elements of all gates
        self.by_input, self.by_state = 2 * self.rows * n.inputs, 2 * self.rows * n.hidden
        self.uses = uses

    def gates(self, bias: Shaped | None) -> int:
        """`W x + R h + (Wb + Rb)`, activated; Rb of the last gate is apart if it is linear."""
        n = self.n
        count = self.by_input + self.by_state + self.rows + self._over_activations(0)
        if bias is None:
            return count
        joined = n.rows - n.hidden if self.linear else n.rows
        return count + self.rows + joined * len(n.acts) + (self.cell if self.linear else 0)

    def slopes(self) -> int:
        """The slopes of the activations."""
        return self._over_activations(1)

    def _over_activations(self, which: int) -> int:
        """Activations behind the gates' (the last one of LSTM) are left out."""
        return self.state * sum(
            count * ACTIVATIONS[name][which]
            for acts in self.n.acts
            for name, count in zip(acts, self.uses, strict=False)
        )

    def gradients(self, out: Results) -> int:
        """`da W`, `daᵀ x`, `daᵀ h` and the sum of da, as wanted, and `Rᵀ da`."""
        count = self.by_state
        for index, product in enumerate((self.by_input, self.by_input, self.by_state, self.rows)):
            count += product if wanted(out, index) else 0
        return count


@cost("LSTM")
def lstm(
    x: Shaped, _: Shaped, r: Shaped, b: Shaped | None = None, _lens: Any = None, _h0: Any = None,
    _c0: Any = None, p: Shaped | None = None, **attributes: Any,
) -> int:  # fmt: skip
    """`c = f c₋₁ + i g`, `h = o tanh(c)`."""
    n = Counts("LSTM", x, r, (3, 1), attributes)
    return n.gates(b) + (5 + (6 if p is not None else 0)) * n.cell


@cost("ai.gradtool::LSTMGrad")
def lstm_grad(
    x: Shaped, _: Shaped, r: Shaped, b: Shaped | None, _lens: Any, _h0: Any, _c0: Any,
    p: Shaped | None, _y: Shaped, dy: Shaped | None = None, _dy_h: Any = None, _dy_c: Any = None,
    kept: Shaped | None = None, *, out: Results, **attributes: Any,
) -> int:  # fmt: skip
    """Gates and cell states are computed again unless they were kept, then it goes back in time.

    do = dh tanh(c) o'     dc += dh o tanh'(c)     di = dc g i'     df = dc c₋₁ f'
    dg = dc i g'           dc₋₁ = dc f             dh₋₁ = Rᵀ [di, do, df, dg]
    """
    n = Counts("LSTM", x, r, (3, 1), attributes)
    again = n.gates(b) + 3 * n.cell
    back = n.slopes() + (15 + (dy is not None)) * n.cell
    if p is not None:
        again += 6 * n.cell
        back += (12 if wanted(out, 6) else 6) * n.cell
    return (again if kept is None else 0) + back + n.gradients(out)


@cost("GRU")
def gru(x: Shaped, _: Shaped, r: Shaped, b: Shaped | None = None, **attributes: Any) -> int:
    """`h = (h₋₁ - hh) z + hh`, and a product of the reset gate."""
    n = Counts("GRU", x, r, (2, 1), attributes)
    return n.gates(b) + 4 * n.cell


@cost("ai.gradtool::GRUGrad")
def gru_grad(
    x: Shaped, _: Shaped, r: Shaped, b: Shaped | None, _lens: Any, _h0: Any, _y: Shaped,
    dy: Shaped | None = None, *, out: Results, **attributes: Any,
) -> int:  # fmt: skip
    """The gates are computed again, then it goes back in time.

    dz = dh (h₋₁ - hh) z'     dhh = dh (1 - z) hh'     dr = dq q r'  (or ds h₋₁ r')
    dh₋₁ = dh z + Rᵀ [dz, dr, dhh r]
    """
    n = Counts("GRU", x, r, (2, 1), attributes)
    back = n.slopes() + (13 + (dy is not None)) * n.cell
    return n.gates(b) + back + n.gradients(out)


@cost("RNN")
def rnn(x: Shaped, _: Shaped, r: Shaped, b: Shaped | None = None, **attributes: Any) -> int:
    """`h = f(W x + R h₋₁ + bias)`."""
    return Counts("RNN", x, r, (1,), attributes).gates(b)


@cost("ai.gradtool::RNNGrad")
def rnn_grad(
    x: Shaped, _: Shaped, r: Shaped, _b: Any, _lens: Any, _h0: Any, _y: Shaped,
    dy: Shaped | None = None, *, out: Results, **attributes: Any,
) -> int:  # fmt: skip
    """`da = dh f'`, which follows from Y, and `dh₋₁ = Rᵀ da`."""
    n = Counts("RNN", x, r, (1,), attributes)
    return n.slopes() + (1 + (dy is not None)) * n.cell + n.gradients(out)
