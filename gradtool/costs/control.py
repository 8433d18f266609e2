"""Control flow: the bodies, as often as they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtool.costs import cost, total
from gradtool.costs.turns import over_bodies


def _control(name: str) -> Callable[..., int | None]:
    @cost(name)
    def formula(*inputs: Any, out: Any, **attributes: Any) -> int | None:  # noqa: ARG001
        return over_bodies(name, inputs, attributes, total)

    return formula


for _name in ("If", "Loop", "Scan"):
    _control(_name)
