"""The value of a gradient where mathematics leaves a choice: at kinks, ties and poles.

PyTorch's value where frameworks differ, unless the ONNX specification decides; symmetric in
symmetric inputs; never a silent mask over a NaN.  The examples are tested by exact equality, and
the table is printed in `docs/operators.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gradtool.graph.registry import Registry

Numbers = tuple[Any, ...]


@dataclass(frozen=True)
class Example:
    """Inputs of one operator and the gradients of `Σ dy · y`, with `dy = 1` unless it is given.

    Integers and truth values are constants, other inputs float32; `None` in the gradients is not
    looked at.
    """

    op: str
    inputs: Numbers
    gradients: Numbers
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dy: Any = None
    opset: int = 20


@dataclass(frozen=True)
class Convention:
    """A row of the table: place, gradient, and the gradients of other tools."""

    operators: tuple[str, ...]
    point: str
    gradient: str
    note: str = ""
    examples: tuple[Example, ...] = ()

    domain = ""
    since = 1

    @property
    def op(self) -> str:
        """The first operator, by which the table is sorted."""
        return self.operators[0]


def unary(op: str, x: Any, dx: Any, **attributes: Any) -> Example:
    return Example(op, ([x],), ([dx],), attributes)


CONVENTIONS = Registry[Convention]("conventions", "conventions")


def convention(operators: tuple[str, ...], *rest: Any) -> None:
    """Declare a convention, with the arguments of `Convention`."""
    CONVENTIONS.add(Convention(operators, *rest))


def points(op: str) -> list[Convention]:
    """The conventions that concern an operator."""
    return [c for c in CONVENTIONS.entries() if op in c.operators]
