"""Control flow: the bodies, as often as they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtool.ops.control.cost_turns import over_bodies
from gradtool.ops.costs import cost, total


def _control(name: str) -> Callable[..., int | None]:
    @cost(name)
    def formula(*inputs: Any, out: Any, **attributes: Any) -> int | None:
        return over_bodies(name, inputs, attributes, total)

    return formula


for _name in ("If", "Loop", "Scan"):
    _control(_name)
