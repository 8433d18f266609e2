"""A model with sizes given to its symbols."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from gradtool import shapes
from gradtool.io import rules
from gradtool.io.dims import bind
from gradtool.shapes.inference import register_shapes


def bound(model: ir.Model, dims: Mapping[str, int]) -> ir.Model:
    """A copy of a model with sizes given to symbols, its shapes inferred again.

    Raises:
        ModelError: a node does not fit these sizes; its kernel could read outside of an array.
    """
    register_shapes()
    copy = model.clone()
    bind(copy, dims, {}, None)
    shapes.infer(copy)
    rules.check(copy)
    return copy
