"""Steps of optimizers: operations per element of a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.ops.costs import cost
from gradtool.ops.shared.element_counts import Shaped, size

DOMAIN = "ai.onnx.preview.training"


def _optimized(tensors: Sequence[Shaped], kinds: int) -> int:
    """Elements of the tensors of the first of so many kinds."""
    return size(*tensors[: len(tensors) // kinds])


@cost(f"{DOMAIN}::Adagrad")
def adagrad(_rate: Any, _count: Any, *tensors: Shaped, norm_coefficient: float = 0.0) -> int:
    """`h + g²`, `x - r g / (√h + ε)`; regularised, `g + n x`."""
    return (9 if norm_coefficient else 7) * _optimized(tensors, 3)


@cost(f"{DOMAIN}::Adam")
def adam(
    _rate: Any, _count: Any, *tensors: Shaped, norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> int:  # fmt: skip
    """`v + (1 - α)(g - v)`, `h + (1 - β)(g² - h)`, `x - r v / (√h + ε)`, perhaps made smaller."""
    extra = (2 if norm_coefficient else 0) + (1 if norm_coefficient_post else 0)
    return (12 + extra) * _optimized(tensors, 4)


@cost(f"{DOMAIN}::Momentum")
def momentum(_rate: Any, _count: Any, *tensors: Shaped, mode: str, norm_coefficient: float) -> int:
    """`v = α v + β g`, `x - r v`, or `x - r (g + α v)` for Nesterov."""
    extra = (2 if norm_coefficient else 0) + (2 if mode == "nesterov" else 0)
    return (5 + extra) * _optimized(tensors, 3)
