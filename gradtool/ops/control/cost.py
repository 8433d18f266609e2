"""Control flow: the bodies, as often as they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.ops.control.programs import Body, endless
from gradtool.ops.costs import cost, total

Measure = Callable[[Body], int | None]


def over_bodies(
    op: str, inputs: Sequence[Any], attributes: Mapping[str, Any], measure: Measure
) -> int | None:
    """Measure of the bodies of If, Loop or Scan over all turns; 0 for other operators.

    Of the branches of an If the larger one counts.  None where the measure or the number of turns
    is not known.
    """
    if op == "If":
        branches = [measure(attributes[name]) for name in ("else_branch", "then_branch")]
        known = [count for count in branches if count is not None]
        return max(known) if len(known) == len(branches) else None
    if op not in ("Loop", "Scan"):
        return 0
    body: Body = attributes["body"]
    times = _loop_turns(inputs, body) if op == "Loop" else scan_turns(inputs, body, attributes)
    once = measure(body)
    return None if times is None or once is None else times * once


def scan_turns(inputs: Sequence[Any], body: Body, attributes: Mapping[str, Any]) -> int:
    """The length of the axis that a Scan goes along."""
    first = body.formal - attributes["num_scan_inputs"]
    axes = attributes.get("scan_input_axes")
    length: int = inputs[first].shape[axes[0] if axes else 0]
    return length


def _loop_turns(inputs: Sequence[Any], body: Body) -> int | None:
    """The turns of a Loop that ends by its count alone; None if data may end it, or the count does.

    The condition that a turn gives is then the one that it got, or constantly true.
    """
    count, condition = inputs[:2]
    if isinstance(condition, np.ndarray) and not condition.reshape(-1)[0]:
        return 0
    always = condition is None or isinstance(condition, np.ndarray)
    if not isinstance(count, np.ndarray) or not always or not endless(body):
        return None
    return max(int(count.reshape(-1)[0]), 0)


def _control(name: str) -> Callable[..., int | None]:
    @cost(name)
    def formula(*inputs: Any, out: Any, **attributes: Any) -> int | None:
        return over_bodies(name, inputs, attributes, total)

    return formula


for _name in ("If", "Loop", "Scan"):
    _control(_name)
