"""Static knowledge of a node's attributes and operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph.limits import MOST_ELEMENTS

Sizes = Sequence[int | None]


def ints(node: ir.Node, name: str) -> list[int]:
    """An attribute of integers; none where it is left out."""
    attribute = node.attributes.get(name)
    return [] if attribute is None else list(attribute.as_ints())


def strings(node: ir.Node, name: str) -> list[str]:
    """An attribute of texts; none where it is left out."""
    attribute = node.attributes.get(name)
    return [] if attribute is None else list(attribute.as_strings())


def operand(node: ir.Node, index: int) -> ir.Value | None:
    """An operand; None where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def sizes(node: ir.Node, index: int) -> Sizes | None:
    """The shape of an input, None for each open size; None if it has no known shape."""
    value = operand(node, index)
    if value is None or value.shape is None:
        return None
    return [size if isinstance(size, int) else None for size in value.shape]


def constant(node: ir.Node, index: int) -> np.ndarray[Any, Any] | None:
    """The content of an operand, if it is constant and not large."""
    value = operand(node, index)
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.size > MOST_ELEMENTS or getattr(tensor, "absent", False):
        return None
    return tensor.numpy()
