"""Composites: operators of our own, each with a body in standard ones.

Bodies are in `gradtool.ops`; emitting and shape inference find them here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, TypeVar

import onnx_ir as ir

from gradtool.graph.injection import provided
from gradtool.graph.registry import Registry
from gradtool.graph.typed import Dims, Tensor

DOMAIN = "ai.gradtool"

Outputs = Sequence[tuple[Dims, ir.DataType]]  # the shape and type of each
Shapes = Callable[..., Outputs]
Body = Callable[Concatenate[Any, ...], Tensor | Sequence[Tensor]]
B = TypeVar("B", bound=Body)


@dataclass(frozen=True)
class Composite:
    """A registered composite.

    `body(op, *inputs, **attributes)` emits standard operators and returns the outputs.
    `shapes(*inputs, **attributes)`, which names what it reads (`declarations.ask`), gives
    `(shape, dtype)` of each output from the input values.  A
    call may have fewer outputs: the body then returns so many.  The cost of a call is counted off
    the body, or has a formula of its own.
    """

    name: str
    body: Body
    outputs: int
    shapes: Shapes

    domain: str = DOMAIN
    since: int = 1

    @property
    def op(self) -> str:
        """The operator of a call."""
        return self.name


_COMPOSITES = Registry[Composite]("composites", "body", "gradient", function="body")


def composite(
    name: str, *, like: int | tuple[int, ...] = 0, shapes: Shapes | None = None, outputs: int = 1
) -> Callable[[B], B]:
    """Register the decorated function as the body of composite `name`.

    `body(op, *inputs, **attributes)` emits standard operators and returns the outputs.

    Args:
        name: the operator that a call is.
        like: by output, the input whose shape and type it has.
        shapes: `f(*inputs, **attributes)`, the shape and type of each output, in place of `like`.
        outputs: their number, where `shapes` gives what they are.

    Example:
        @gt.composite("Twice")
        def twice(op, x):
            return op.Add(x, x)
    """
    sources = (like,) if isinstance(like, int) else like

    def as_inputs(*inputs: Tensor) -> Outputs:
        return [(inputs[i].shape, inputs[i].dtype) for i in sources]

    def register(body: B) -> B:
        count = len(sources) if shapes is None else outputs
        _COMPOSITES.add(Composite(name, body, count, shapes or as_inputs))
        return body

    return register


def find(name: str) -> Composite | None:
    """The composite of a name, or None."""
    return _extended().find(DOMAIN, name, 1)


def named(name: str) -> Composite:
    """The composite of a name.

    Raises:
        KeyError: there is none.
    """
    found = find(name)
    if found is None:
        raise KeyError(name)
    return found


def names() -> list[str]:
    """The names of all composites; none is imported for it."""
    return _extended().names(DOMAIN)


def composites() -> dict[str, Composite]:
    """Every registered composite by name."""
    return {entry.name: entry for entry in _extended().entries()}


def _extended() -> Registry[Composite]:
    """The registry, with what plug-ins for rules bring."""
    provided("rules").extend()
    return _COMPOSITES
