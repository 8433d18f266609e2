"""Composites: calls of `ai.gradtool` functions, each with a body in standard operators.

A composite is one node inside the IR, one step of a program and one kernel call.  Saving replaces
it by its body (`inline`), and leaves metadata from which loading puts it back (`refold`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from gradtool.families import load_families

DOMAIN = "ai.gradtool"

Body = Callable[..., Any]
Shapes = Callable[..., Sequence[tuple[Sequence[Any], Any]]]


@dataclass(frozen=True)
class Composite:
    """A registered composite.

    `body(op, *inputs, **attributes)` emits standard operators and returns the outputs.
    `shapes(*inputs, **attributes)` gives `(shape, dtype)` of each output from the input values.
    A call may have fewer outputs: the body then returns so many.
    """

    name: str
    body: Body
    outputs: int
    shapes: Shapes


_REGISTRY: dict[str, Composite] = {}


def composite(
    name: str, *, like: int | tuple[int, ...] = 0, shapes: Shapes | None = None, outputs: int = 1
) -> Callable[[Body], Body]:
    """Register the decorated function as the body of composite `name`.

    Output i has shape and type of input `like[i]`, unless `shapes` says otherwise; with `shapes`,
    `outputs` gives their number.
    """
    sources = (like,) if isinstance(like, int) else like

    def as_inputs(*inputs: Any, **attributes: Any) -> Sequence[tuple[Sequence[Any], Any]]:
        return [(inputs[i].shape, inputs[i].dtype) for i in sources]

    def register(body: Body) -> Body:
        count = len(sources) if shapes is None else outputs
        _REGISTRY[name] = Composite(name, body, count, shapes or as_inputs)
        return body

    return register


@cache
def composites() -> dict[str, Composite]:
    """Every registered composite by name, those of plug-ins for rules included."""
    from gradtool import gradients

    load_families(__name__)
    gradients.rules()
    return dict(sorted(_REGISTRY.items()))
