"""Optimizer updates of each element of a parameter, as formulas.

A formula is `f(op, x, g, numbers…, state…, **options)`: `x` a parameter, `g` its gradient,
`numbers` scalars of their type (None where absent), `state` tensors of their shape.  It returns the
next values of `x` and of the state.  Composites emit it (`gradtool.ops.update.body`), kernels
run it block by block (`gradtool.ops.update.kernel`): `op` has the operators of ONNX by name, and
values have `+ - * /`.  Of some, `SPARSE`, there is a form for the rows of a table that have a
gradient, its name behind the prefix: the others stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gradtool.graph.optimizers import SPARSE_PREFIX

Formula = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True)
class Update:
    """A formula as an operator: its inputs are tensors of one shape, then numbers, then state.

    `state` is how many tensors of state there may be.  The first output is the next value of the
    parameter, or a `direction`, which may lie over the gradient; the others are those of the state.
    """

    formula: Formula
    tensors: int
    numbers: int
    state: int = 0
    direction: bool = False

    @property
    def donors(self) -> tuple[int, ...]:
        """The inputs over which the first output may be written."""
        return (self.tensors - 1,) if self.direction else tuple(range(self.tensors))

    @property
    def over(self) -> tuple[int | None, ...]:
        """By output the input over which it may be written; None of the first (`donors`)."""
        first = self.tensors + self.numbers
        return (None, *range(first, first + self.state))

    def replaced(self, output: int) -> tuple[int, ...]:
        """The inputs that an output may lie over."""
        slot = self.over[output]
        return self.donors if slot is None else (slot,)

    def whole(self, count: int) -> tuple[int, ...]:
        """Indices of the tensors among so many inputs."""
        return (*range(self.tensors), *range(self.tensors + self.numbers, count))


def drawn(value: Any, to: Any, share: Any) -> Any:
    """`value + share · (to - value)`: an exponential mean with decay `1 - share`."""
    return value + (to - value) * share


def velocity(old: Any, g: Any, decay: Any, factor: Any = None) -> Any:
    """`decay · old + factor · g`, the accumulated gradient of momentum."""
    return old * decay + (g if factor is None else g * factor)


def means(old: tuple[Any, Any], g: Any, shares: tuple[Any, Any]) -> tuple[Any, Any]:
    """The exponential means of the gradient and of its square."""
    return drawn(old[0], g, shares[0]), drawn(old[1], g * g, shares[1])


def descended(x: Any, rate: Any, direction: Any, root: Any, epsilon: float) -> Any:
    """`x - rate · direction / (root + ε)`."""
    return x - direction / (root + epsilon) * rate


def decayed(x: Any, factor: Any) -> Any:
    """`factor · x`: weights shrink apart from the gradient; as they are without a factor.

    Source: Loshchilov and Hutter 2019 (arXiv:1711.05101), algorithm 2.
    """
    return x if factor is None else x * factor


def regularised(x: Any, g: Any, decay: Any) -> Any:
    """`g + decay · x`, the gradient of a penalty of squares; `g` without a decay."""
    return g if decay is None else g + x * decay


def sgd(_: Any, x: Any, g: Any, rate: Any, decay: Any, shrinkage: Any) -> tuple[Any, ...]:
    """`shrinkage · x - rate · (g + decay · x)`."""
    return (decayed(x, shrinkage) - regularised(x, g, decay) * rate,)


def momentum(
    _: Any, x: Any, g: Any, rate: Any, decay: Any, mu: Any, share: Any, b: Any, *, nesterov: int
) -> tuple[Any, ...]:
    """`b = μ b + share · g`, `x - rate · b`, or `x - rate · (g + μ b)` for Nesterov.

    Source: Sutskever, Martens, Dahl and Hinton 2013 (ICML), as torch.optim.SGD has it.
    """
    g = regularised(x, g, decay)
    new = velocity(b, g, mu, share)
    return x - (g + new * mu if nesterov else new) * rate, new


def adam(
    op: Any, x: Any, g: Any, rate: Any, root: Any, first: Any, second: Any, decay: Any,
    shrinkage: Any, m: Any, v: Any, *, epsilon: float,
) -> tuple[Any, ...]:  # fmt: skip
    """`shrinkage · x - rate · m / (√v / root + ε)`, m and v the means of `g + decay · x`.

    `first` and `second` are `1 - β₁` and `1 - β₂`; rate and `root` correct means that began at 0.
    Source: Kingma and Ba 2015 (arXiv:1412.6980), algorithm 1.
    """
    g = regularised(x, g, decay)
    m, v = means((m, v), g, (first, second))
    return descended(decayed(x, shrinkage), rate, m, op.Sqrt(v) / root, epsilon), m, v


def adagrad(
    op: Any, x: Any, g: Any, rate: Any, decay: Any, s: Any, *, epsilon: float
) -> tuple[Any, ...]:
    """`s = s + g²`, `x - rate · g / (√s + ε)`.

    Source: Duchi, Hazan and Singer 2011 (JMLR 12), figure 1, its diagonal form.
    """
    g = regularised(x, g, decay)
    total = s + g * g
    return descended(x, rate, g, op.Sqrt(total), epsilon), total


def rmsprop(
    op: Any, x: Any, g: Any, rate: Any, share: Any, decay: Any, mu: Any, s: Any, *more: Any,
    epsilon: float, centered: int,
) -> tuple[Any, ...]:  # fmt: skip
    """`s = s + share · (g² - s)`, `x - rate · g / (√s + ε)`.

    Centred, the root is of `s - m²`, m the mean of g.  With μ, `b = μ b + g / (…)` and
    `x - rate · b`.  `more` is the state m and b, as far as they are there.
    Source: torch.optim.RMSprop; Hinton's lecture 6e, centred Graves 2013 (arXiv:1308.0850).
    """
    state = list(more)
    g = regularised(x, g, decay)
    s = drawn(s, g * g, share)
    changed, square = [s], s
    if centered:
        m = drawn(state.pop(0), g, share)
        changed.append(m)
        square = s - m * m
    if mu is None:
        return descended(x, rate, g, op.Sqrt(square), epsilon), *changed
    b = velocity(state.pop(0), g / (op.Sqrt(square) + epsilon), mu)
    return x - b * rate, *changed, b


def lion(
    op: Any, x: Any, g: Any, rate: Any, first: Any, second: Any, shrinkage: Any, m: Any
) -> tuple[Any, ...]:
    """`shrinkage · x - rate · sign(β₁ m + (1 - β₁) g)`, `m = β₂ m + (1 - β₂) g`.

    `first` and `second` are `1 - β₁` and `1 - β₂`.
    Source: Chen and others 2023 (arXiv:2302.06675), algorithm 2.
    """
    moved = decayed(x, shrinkage) - op.Sign(drawn(m, g, first)) * rate
    return moved, drawn(m, g, second)


def lamb(
    op: Any, x: Any, g: Any, correction: Any, root: Any, first: Any, second: Any, decay: Any,
    m: Any, v: Any, *, epsilon: float,
) -> tuple[Any, ...]:  # fmt: skip
    """The direction `m · correction / (√v / root + ε) + decay · x`, and the means m and v.

    Source: You and others 2020 (arXiv:1904.00962), algorithm 2.
    """
    m, v = means((m, v), g, (first, second))
    u = m * correction / (op.Sqrt(v) / root + epsilon)
    return regularised(x, u, decay), m, v


def scaled_by_variance(op: Any, g: Any, share: Any, v: Any, *, epsilon: float) -> tuple[Any, ...]:
    """`v = v + share · (g² - v)` and the direction `g / √max(v, ε²)`: Adafactor of a vector."""
    v = drawn(v, g * g, share)
    return g / op.Sqrt(op.Max(v, epsilon * epsilon)), v


def muon(_: Any, g: Any, share: Any, mu: Any, b: Any, *, nesterov: int) -> tuple[Any, ...]:
    """`b = b + share · (g - b)` and the direction b, or `g + μ (b - g)` for Nesterov."""
    b = drawn(b, g, share)
    return drawn(g, b, mu) if nesterov else b, b


UPDATES: Mapping[str, Update] = MappingProxyType({
    "SgdUpdate": Update(sgd, 2, 3),
    "MomentumUpdate": Update(momentum, 2, 4, 1),
    "AdamUpdate": Update(adam, 2, 6, 2),
    "AdagradUpdate": Update(adagrad, 2, 2, 1),
    "RmspropUpdate": Update(rmsprop, 2, 4, 3),
    "LionUpdate": Update(lion, 2, 4, 1),
    "LambDirection": Update(lamb, 2, 5, 2, direction=True),
    "VarianceDirection": Update(scaled_by_variance, 1, 1, 1, direction=True),
    "MuonDirection": Update(muon, 1, 2, 1, direction=True),
})  # fmt: skip
SPARSE: Mapping[str, Update] = MappingProxyType(
    {
        f"{SPARSE_PREFIX}{name}": UPDATES[name]
        for name in ("SgdUpdate", "AdagradUpdate", "AdamUpdate")
    }
)
