"""Values of known type and shape, and their nodes: the operands of idioms, rules and bodies.

To a type checker they are classes of their own (`typed.pyi`), which need not be asked for None
again: the driver refuses unknown ones before it calls a rule, and the builder those it can't infer.
At run time they are the classes of onnx-ir.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import onnx_ir as ir

Dim = int | ir.SymbolicDim
Dims = Sequence[Dim] | ir.Shape
Operand = ir.Value | float | Sequence[int] | np.ndarray[Any, Any] | None

Tensor = ir.Value
Node = ir.Node
Maybe = TypeVar("Maybe", Tensor, Tensor | None)


class Emit(Protocol):
    """The emitter of one operator; lists of integers and numbers become constants."""

    def __call__(self, *inputs: Operand, **attributes: Any) -> Tensor: ...


def as_tensor(value: ir.Value | None) -> Tensor | None:
    """A value as one of known type and shape, ensured by the caller."""
    return value


def as_node(node: ir.Node) -> Node:
    """A node as one with all required inputs, ensured by the caller."""
    return node


def ints(dims: Dims) -> tuple[int, ...]:
    """Sizes as known ones, ensured by the caller."""
    return tuple(dims)


def static(dims: Dims) -> bool:
    """Whether sizes are known."""
    return all(isinstance(d, int) for d in dims)


def given(node: Node, slot: int) -> Tensor | None:
    """An optional input; None where it is absent."""
    return node.inputs[slot] if slot < len(node.inputs) else None
