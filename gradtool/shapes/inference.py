"""Shapes of composite calls, taught to the shape inference library."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import onnx_ir as ir

from gradtool.graph import composites
from gradtool.graph.attributes import arguments
from gradtool.graph.composites import DOMAIN, Outputs, Shapes
from gradtool.graph.families import split_name
from gradtool.graph.typed import Tensor
from gradtool.shapes import rules as shape_rules


@cache
def register_shapes() -> None:
    """Teach the shape inference library the shapes of our composites, once."""
    from onnx_shape_inference import registry

    shape_rules.register()
    for name in composites.names():
        registry.register(DOMAIN, name)(_inference(partial(_shapes_of, name)))


def _shapes_of(name: str, *inputs: Tensor, **attributes: Any) -> Outputs:
    return composites.named(name).shapes(*inputs, **attributes)


def shape(name: str) -> Callable[[Shapes], Shapes]:
    """Register the decorated function as the shapes of operator `name`, one of a plug-in.

    `f(*inputs, **attributes)` gets values and gives `(shape, type)` of each output.

    Args:
        name: `domain::Op`.

    Example:
        @gt.shape("com.acme::Twice")
        def twice(x):
            return [(x.shape, x.dtype)]
    """

    def register(shapes: Shapes) -> Shapes:
        from onnx_shape_inference import registry

        registry.register(*split_name(name))(_inference(shapes))
        return shapes

    return register


def _inference(shapes: Shapes) -> Callable[[Any, ir.Node], None]:
    def infer(context: Any, node: ir.Node) -> None:
        if any(v is not None and (v.shape is None or v.dtype is None) for v in node.inputs):
            return
        found = shapes(*node.inputs, **arguments(node))
        for value, (shape, dtype) in zip(node.outputs, found, strict=False):
            dims = [context.new_symbolic_dim() if _unnamed(d) else d for d in shape]
            context.set_shape_and_dtype(value, ir.Shape(dims), dtype)

    return infer


def _unnamed(dim: Any) -> bool:
    return isinstance(dim, ir.SymbolicDim) and dim.value is None
