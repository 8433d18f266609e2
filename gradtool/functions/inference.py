"""Shapes of composite calls, taught to the shape inference library."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import onnx_ir as ir

from gradtool import shape_rules
from gradtool.attributes import arguments
from gradtool.functions import DOMAIN, Composite, composites


@cache
def register_shapes() -> None:
    """Teach the shape inference library the shapes of our composites, once."""
    from onnx_shape_inference import registry

    shape_rules.register()
    for name, entry in composites().items():
        registry.register(DOMAIN, name)(_inference(entry))


def _inference(entry: Composite) -> Callable[[Any, ir.Node], None]:
    def infer(context: Any, node: ir.Node) -> None:
        if any(v is not None and (v.shape is None or v.dtype is None) for v in node.inputs):
            return
        found = entry.shapes(*node.inputs, **arguments(node))
        for value, (shape, dtype) in zip(node.outputs, found, strict=False):
            dims = [context.new_symbolic_dim() if _unnamed(d) else d for d in shape]
            context.set_shape_and_dtype(value, ir.Shape(dims), dtype)

    return infer


def _unnamed(dim: Any) -> bool:
    return isinstance(dim, ir.SymbolicDim) and dim.value is None
