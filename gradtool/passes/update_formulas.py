"""What optimizers have in common, for one tensor, as formulas that emit standard operators.

Within `op.arithmetic()`.  They are written so that a kernel that works in place needs no more than
one tensor beside the gradient: what changes stands last, where the old value may be written over.
"""

from __future__ import annotations

from typing import Any


def drawn(value: Any, to: Any, share: Any) -> Any:
    """`value + share · (to - value)`: an exponential mean with decay `1 - share`."""
    return value + (to - value) * share


def velocity(old: Any, g: Any, decay: Any, factor: Any = None) -> Any:
    """`decay · old + factor · g`, the accumulated gradient of momentum."""
    return old * decay + (g if factor is None else g * factor)


def means(old: tuple[Any, Any], g: Any, decays: tuple[float, float]) -> tuple[Any, Any]:
    """The exponential means of the gradient and of its square."""
    first = drawn(old[0], g, 1 - decays[0])
    return first, drawn(old[1], g * g, 1 - decays[1])


def descended(x: Any, rate: Any, direction: Any, root: Any, epsilon: float) -> Any:
    """`x - rate · direction / (root + ε)`."""
    return x - direction / (root + epsilon) * rate


def decayed(x: Any, factor: Any) -> Any:
    """`factor · x`: weights shrink apart from the gradient.

    Source: Loshchilov and Hutter 2019 (arXiv:1711.05101), algorithm 2.
    """
    return x * factor
