"""Attributes of nodes as Python values, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir


def arguments(node: ir.Node) -> dict[str, Any]:
    """The attributes of a node as Python values; tensors as numpy arrays."""
    return {
        name: attr.value.numpy() if attr.type == ir.AttributeType.TENSOR else attr.value
        for name, attr in sorted(node.attributes.items())
    }


def attribute(name: str, value: Any) -> ir.Attr:
    """A typed attribute from a Python value; sequences must not be empty of type."""
    if isinstance(value, ir.Attr):
        return value
    if isinstance(value, ir.Graph):
        return ir.AttrGraph(name, value)
    if isinstance(value, (bool, int, np.integer, ir.DataType)):
        return ir.AttrInt64(name, int(value))
    if isinstance(value, (float, np.floating)):
        return ir.AttrFloat32(name, float(value))
    if isinstance(value, str):
        return ir.AttrString(name, value)
    if isinstance(value, np.ndarray):
        return ir.AttrTensor(name, ir.Tensor(value))
    values = list(value)
    if values and isinstance(values[0], str):
        return ir.AttrStrings(name, values)
    if values and isinstance(values[0], float):
        return ir.AttrFloat32s(name, values)
    return ir.AttrInt64s(name, [int(v) for v in values])
