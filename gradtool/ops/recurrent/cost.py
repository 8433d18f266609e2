"""Recurrent operators: products with W and R for every time, and what happens to each gate.

`cell` is the number of elements of a state at all times and in all directions: T · B · H · D.
"""

from __future__ import annotations

from typing import Any

from gradtool.operators.recurrence import Recurrence, recurrence
from gradtool.ops.costs import cost
from gradtool.ops.elementwise import cost_formulas as counts
from gradtool.ops.shared.element_counts import Results, Shaped, wanted

# Operations per element of an activation, and of its slope.
ACTIVATIONS = {
    "affine": (2, 0),
    "elu": (4, 3),
    "hardsigmoid": (4, 3),
    "leakyrelu": (2, 1),
    "relu": (1, 1),
    "scaledtanh": (3, 5),
    "sigmoid": (counts.of("Sigmoid"), 2),
    "softplus": (counts.of("Softplus"), 3),
    "softsign": (3, 3),
    "tanh": (1, 2),
    "thresholdedrelu": (1, 1),
}
DEFAULTS = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}


class Counts:
    """The parts of the count of one node."""

    def __init__(
        self, kind: str, x: Shaped, r: Shaped, uses: tuple[int, ...], attributes: dict[str, Any]
    ) -> None:
        """`uses` says how many gates have each activation."""
        for name in ("input_forget", "linear_before_reset"):
            attributes.pop(name, None)
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
        self.n: Recurrence = recurrence(x, r, gates, DEFAULTS[kind], **attributes)
        n = self.n
        self.state = n.times * n.batch * n.hidden
        self.cell = self.state * len(n.acts)
        self.rows = n.gates * self.cell  # elements of all gates
        self.by_input, self.by_state = 2 * self.rows * n.inputs, 2 * self.rows * n.hidden
        self.uses = uses

    def gates(self, bias: Shaped | None, *, linear: bool = False) -> int:
        """`W x + R h + (Wb + Rb)`, before activation; if `linear`, Rb of the last gate is apart."""
        n = self.n
        count = self.by_input + self.by_state + self.rows
        if bias is None:
            return count
        joined = n.rows - n.hidden if linear else n.rows
        return count + self.rows + joined * len(n.acts) + (self.cell if linear else 0)

    def activated(self) -> int:
        """The activations, clipped before if they are."""
        clipped = 0 if self.n.clip is None else 2 * sum(self.uses) * self.cell
        return clipped + self._over_activations(0)

    def slopes(self) -> int:
        """The slopes of the activations."""
        return self._over_activations(1)

    def _over_activations(self, which: int) -> int:
        """Activations behind those of the gates (the last one of LSTM) are left out."""
        return self.state * sum(
            count * ACTIVATIONS[act.name][which]
            for acts in self.n.acts
            for act, count in zip(acts, self.uses, strict=False)
        )

    def shown(self, which: int) -> int:
        """The last activation of each direction, or its slope, once per state."""
        return self.state * sum(ACTIVATIONS[acts[-1].name][which] for acts in self.n.acts)

    def gradients(self, out: Results) -> int:
        """`da W`, `daᵀ x`, `daᵀ h` and the sum of da, those that are wanted, and `Rᵀ da`."""
        count = self.by_state
        for index, product in enumerate((self.by_input, self.by_input, self.by_state, self.rows)):
            count += product if wanted(out, index) else 0
        return count


def _lstm(x: Shaped, r: Shaped, attributes: dict[str, Any]) -> tuple[Counts, bool]:
    coupled = bool(attributes.get("input_forget", 0))
    return Counts("LSTM", x, r, (2 if coupled else 3, 1), attributes), coupled


@cost("LSTM")
def lstm(
    x: Shaped, _: Shaped, r: Shaped, b: Shaped | None = None, _lens: Any = None, _h0: Any = None,
    _c0: Any = None, p: Shaped | None = None, *, out: Results, **attributes: Any,
) -> int:  # fmt: skip
    """`c = f c₋₁ + i g`, `h = o h(c)`; f is 1 - i if they are coupled."""
    del out
    n, coupled = _lstm(x, r, attributes)
    elements = 4 + coupled + (6 if p is not None else 0)
    return n.gates(b) + n.activated() + n.shown(0) + elements * n.cell


@cost("ai.gradtool::LSTMGrad")
def lstm_grad(
    x: Shaped, _: Shaped, r: Shaped, b: Shaped | None, _lens: Any, _h0: Any, _c0: Any,
    p: Shaped | None, _y: Shaped, dy: Shaped | None = None, _dy_h: Any = None, _dy_c: Any = None,
    kept: Shaped | None = None, *, out: Results, **attributes: Any,
) -> int:  # fmt: skip
    """Gates and cell states are computed again unless they were kept, then it goes back in time.

    do = dh h(c) o'     dc += dh o h'(c)     di = dc g i'     df = dc c₋₁ f'     dg = dc i g'
    dc₋₁ = dc f         dh₋₁ = Rᵀ [di, do, df, dg]
    """
    n, coupled = _lstm(x, r, attributes)
    again = n.gates(b) + n.activated() + (3 + coupled) * n.cell
    elements = 12 - coupled + (dy is not None)
    back = n.shown(0) + n.shown(1) + n.slopes() + elements * n.cell
    if p is not None:
        again += 6 * n.cell
        back += (12 if wanted(out, 6) else 6) * n.cell
    return (again if kept is None else 0) + back + n.gradients(out)


def _gru(x: Shaped, r: Shaped, attributes: dict[str, Any]) -> tuple[Counts, bool]:
    linear = bool(attributes.get("linear_before_reset", 0))
    return Counts("GRU", x, r, (2, 1), attributes), linear


@cost("GRU")
def gru(
    x: Shaped, _: Shaped, r: Shaped, b: Shaped | None = None, *_rest: Any,
    out: Results, **attributes: Any,
) -> int:  # fmt: skip
    """`h = (h₋₁ - hh) z + hh`, and a product of the reset gate."""
    del out
    n, linear = _gru(x, r, attributes)
    return n.gates(b, linear=linear) + n.activated() + 4 * n.cell


@cost("ai.gradtool::GRUGrad")
def gru_grad(
    x: Shaped, _: Shaped, r: Shaped, b: Shaped | None, _lens: Any, _h0: Any, _y: Shaped,
    dy: Shaped | None = None, *_rest: Any, out: Results, **attributes: Any,
) -> int:  # fmt: skip
    """The gates are computed again, then it goes back in time.

    dz = dh (h₋₁ - hh) z'     dhh = dh (1 - z) hh'     dr = dq q r'  (or ds h₋₁ r')
    dh₋₁ = dh z + Rᵀ [dz, dr, dhh r]
    """
    n, linear = _gru(x, r, attributes)
    again = n.gates(b, linear=linear) + n.activated() + n.cell
    back = n.slopes() + (12 + (dy is not None)) * n.cell
    return again + back + n.gradients(out)


@cost("RNN")
def rnn(
    x: Shaped, _: Shaped, r: Shaped, b: Shaped | None = None, *_rest: Any,
    out: Results, **attributes: Any,
) -> int:  # fmt: skip
    """`h = f(W x + R h₋₁ + bias)`."""
    del out
    n = Counts("RNN", x, r, (1,), attributes)
    return n.gates(b) + n.activated()


@cost("ai.gradtool::RNNGrad")
def rnn_grad(
    x: Shaped, _: Shaped, r: Shaped, b: Shaped | None, _lens: Any, _h0: Any, _y: Shaped,
    dy: Shaped | None = None, *_rest: Any, out: Results, **attributes: Any,
) -> int:  # fmt: skip
    """`da = dh f'`, `dh₋₁ = Rᵀ da`; without a slope that follows from Y, f is computed again."""
    n = Counts("RNN", x, r, (1,), attributes)
    again = 0 if n.n.plain else n.gates(b) + n.activated()
    return again + n.slopes() + (1 + (dy is not None)) * n.cell + n.gradients(out)
