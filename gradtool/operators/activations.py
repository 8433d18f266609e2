"""The activations of recurrent operators: which, with which parameters, their values and slopes.

The specification gives their parameters the defaults of the operators of the same name; Affine and
ScaledTanh have none, and are the identity and Tanh unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "relu": (None, None),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "tanh": (None, None),
    "scaledtanh": (1.0, 1.0),
    "sigmoid": (None, None),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
    "softsign": (None, None),
    "softplus": (None, None),
}


@dataclass(frozen=True)
class Activation:
    """An activation by its lower-case name, with its parameters (0 where it has none)."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    @property
    def from_value(self) -> bool:
        """Whether the slope is a function of the value alone."""
        return self.name in ("sigmoid", "tanh")


def resolve(
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    default: Sequence[str],
    directions: int,
) -> list[tuple[Activation, ...]]:
    """The activations of each direction. Parameters go, in order, to those that take any."""
    chosen = list(names or list(default) * directions)
    left = {"alpha": list(alphas or ()), "beta": list(betas or ())}

    def take(kind: str, fallback: float | None) -> float:
        if fallback is None:
            return 0.0
        return float(left[kind].pop(0)) if left[kind] else fallback

    made = []
    for name in chosen:
        alpha, beta = DEFAULTS[name.lower()]
        made.append(Activation(name.lower(), take("alpha", alpha), take("beta", beta)))
    count = len(default)
    return [tuple(made[d * count : (d + 1) * count]) for d in range(directions)]


def value(op: Any, act: Activation, a: Any) -> Any:
    """Emit `act(a)`."""
    simple = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "softsign": "Softsign"}
    if act.name in simple:
        return getattr(op, simple[act.name])(a)
    match act.name:
        case "affine":
            return a * act.alpha + act.beta
        case "leakyrelu":
            return op.LeakyRelu(a, alpha=act.alpha)
        case "thresholdedrelu":
            return op.Where(op.GreaterOrEqual(a, act.alpha), a, op.constant(0.0, a.dtype))
        case "scaledtanh":
            return op.Tanh(a * act.beta) * act.alpha
        case "hardsigmoid":
            return op.HardSigmoid(a, alpha=act.alpha, beta=act.beta)
        case "elu":
            return op.Elu(a, alpha=act.alpha)
        case _:
            return op.Softplus(a)


def slope(op: Any, act: Activation, a: Any, y: Any) -> Any:
    """Emit `act'(a)`, given `y = act(a)`. At a kink: 0, or the slope of the left side."""
    match act.name:
        case "sigmoid":
            return y * (1 - y)
        case "tanh":
            return 1 - y * y
        case "relu" | "leakyrelu" | "thresholdedrelu":
            edge = act.alpha if act.name == "thresholdedrelu" else 0.0
            rising = op.cast(op.Greater(a, edge), a.dtype)
            return rising * (1 - act.alpha) + act.alpha if act.name == "leakyrelu" else rising
        case "affine":
            return op.expand(op.constant(act.alpha, a.dtype), a)
        case "scaledtanh":
            z = op.Tanh(a * act.beta)
            return (1 - z * z) * (act.alpha * act.beta)
        case "hardsigmoid":
            return op.cast(op.Greater(y * (1 - y), 0.0), a.dtype) * act.alpha
        case "elu":
            falling = op.Exp(op.Min(a, 0.0)) * act.alpha
            return op.Where(op.Greater(a, 0.0), op.constant(1.0, a.dtype), falling)
        case "softsign":
            rest = 1 - op.Abs(y)
            return rest * rest
        case _:
            return op.Sigmoid(a)
