"""Updates of parameters: the operations of their formulas, for each element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.operators.updates import SPARSE, UPDATES, Update
from gradtool.ops.costs import cost, counts
from gradtool.ops.shared.element_counts import Shaped, size
from gradtool.ops.update.kernel import tape_of


def _register(name: str, update: Update) -> None:
    @cost(f"ai.gradtool::{name}")
    def formula(*inputs: Any, out: Sequence[Any], **options: Any) -> int:
        wanted = [o for o in out if o is not None]
        tape = tape_of(update, inputs, out, options)
        return len(tape.elements) * size(*wanted[:1]) + len(tape.numbers)


for _name, _update in UPDATES.items():
    _register(_name, _update)


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


# The indices are sorted.
counts({"ai.gradtool::RowSlots": lambda i: size(i) * max(size(i) - 1, 0).bit_length()})


def _register_rows(name: str, update: Update) -> None:
    @cost(f"ai.gradtool::{name}")
    def formula(*inputs: Any, out: Sequence[Any], **options: Any) -> int:
        x, _, _, sums, *rest = inputs
        tape = tape_of(update, (x, sums, *rest), out, options)
        return len(tape.elements) * size(sums) + len(tape.numbers)


for _name, _update in SPARSE.items():
    _register_rows(_name, _update)
