"""Updates of parameters as composites: their bodies are the formulas, in standard operators."""

from __future__ import annotations

from typing import Any

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Tensor
from gradtool.operators.updates import UPDATES, Update


def _register(name: str, update: Update) -> None:
    likes = (0,) * (1 + update.state)

    def body(op: Builder, *inputs: Tensor | None, **options: Any) -> tuple[Tensor, ...]:
        return update.formula(op, *inputs, **options)

    body.__doc__ = update.formula.__doc__
    composite(name, like=likes)(body)


for _name, _update in UPDATES.items():
    _register(_name, _update)


@composite("FactoredDirection")
def factored_direction(
    op: Builder, g: Tensor, rows: Tensor, columns: Tensor, *, epsilon: float
) -> Tensor:
    """The direction `g / √max(rows · columns, ε²)` of Adafactor for matrices.

    `g` is `[…, n, m]`, `rows` `[…, n, 1]`, `columns` `[…, 1, m]`.
    """
    return g / op.Sqrt(op.Max(rows * columns, epsilon * epsilon))
