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
