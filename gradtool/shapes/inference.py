"""Shapes of composite calls, taught to the shape inference library."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import onnx_ir as ir

from gradtool.graph import composites
from gradtool.graph.attributes import arguments
from gradtool.graph.composites import DOMAIN, Shapes
from gradtool.graph.declarations import ask
from gradtool.graph.families import split_name
from gradtool.shapes import rules as shape_rules


@cache
def register_shapes() -> None:
    """Teach the shape inference library the shapes of our composites, once."""
    from onnx_shape_inference import registry

    shape_rules.register()
    for name in composites.names():
        registry.register(DOMAIN, name)(_inference(partial(_of_composite, name)))


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

        registry.register(*split_name(name))(_inference(lambda: shapes))
        return shapes

    return register


def _of_composite(name: str) -> Shapes:
    return composites.named(name).shapes


def _inference(shapes: Callable[[], Shapes]) -> Callable[[Any, ir.Node], None]:
    def infer(context: Any, node: ir.Node) -> None:
        if any(v is not None and (v.shape is None or v.dtype is None) for v in node.inputs):
            return
        found = ask(shapes(), node.inputs, None, arguments(node))
        for value, (shape, dtype) in zip(node.outputs, found, strict=False):
            dims = [
                context.new_symbolic_dim()
                if isinstance(d, ir.SymbolicDim) and d.value is None
                else d
                for d in shape
            ]
            context.set_shape_and_dtype(value, ir.Shape(dims), dtype)

    return infer
