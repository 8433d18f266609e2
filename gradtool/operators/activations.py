"""The activations of recurrent operators: which, with which parameters, and their values.

The specification gives their parameters the defaults of the operators of the same name; Affine and
ScaledTanh have none, and are the identity and Tanh unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradtool.operators.recurrence import activations_of

PARAMETERS: dict[str, tuple[float | None, float | None]] = {
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


def resolve(op: str, attributes: Mapping[str, Any]) -> list[list[Activation]]:
    """The activations of each direction. Parameters go, in order, to activations with any."""
    left = [list(attributes.get(f"activation_{kind}") or ()) for kind in ("alpha", "beta")]

    def made(name: str) -> Activation:
        given = [
            0.0 if default is None else float(rest.pop(0)) if rest else default
            for default, rest in zip(PARAMETERS[name], left, strict=True)
        ]
        return Activation(name, *given)

    return [[made(name) for name in names] for names in activations_of(op, attributes)]


def value(op: Any, act: Activation, a: Any) -> Any:
    """Emit `act(a)`."""
    simple = {
        "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "softsign": "Softsign",
        "softplus": "Softplus",
    }  # fmt: skip
    match act.name:
        case "affine":
            return a * act.alpha + act.beta
        case "leakyrelu":
            return op.LeakyRelu(a, alpha=act.alpha)
        case "thresholdedrelu":  # its bound is its own value here, not 0; the slope there is 0
            bound, zero = (op.constant(n, a.dtype) for n in (act.alpha, 0.0))
            at_bound = op.Where(op.Equal(a, bound), bound, zero)
            return op.ThresholdedRelu(a, alpha=act.alpha) + at_bound
        case "scaledtanh":
            return op.Tanh(a * act.beta) * act.alpha
        case "hardsigmoid":
            return op.HardSigmoid(a, alpha=act.alpha, beta=act.beta)
        case "elu":
            return op.Elu(a, alpha=act.alpha)
        case name:
            return getattr(op, simple[name])(a)
