"""Shapes of operators of ai.onnx.ml unknown to onnx-shape-inference."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

FLOAT = ir.DataType.FLOAT


def like_x(_library: Any, ctx: Any, node: ir.Node) -> None:
    """The shape of x, in single precision."""
    x = node.inputs[0]
    if x is not None:
        ctx.set_shape_and_dtype(node.outputs[0], x.shape, FLOAT)


def imputer(_library: Any, ctx: Any, node: ir.Node) -> None:
    """Shape and type of x."""
    x = node.inputs[0]
    if x is not None:
        ctx.set_shape_and_dtype(node.outputs[0], x.shape, x.dtype)


def _rows(ctx: Any, x: ir.Value | None) -> Any:
    """The number of rows of x; a vector is one row."""
    if x is None or x.shape is None:
        return ctx.new_symbolic_dim()
    return x.shape[0] if len(x.shape) > 1 else 1


def feature_vectorizer(_library: Any, ctx: Any, node: ir.Node) -> None:
    """Rows, by the sum of the dimensions."""
    total = sum(node.attributes["inputdimensions"].as_ints())
    ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([_rows(ctx, node.inputs[0]), total]), FLOAT)


def one_hot_encoder(_library: Any, ctx: Any, node: ir.Node) -> None:
    """The shape of x, and an axis of categories."""
    x, given = node.inputs[0], node.attributes
    if x is not None and x.shape is not None:
        count = len((given.get("cats_int64s") or given["cats_strings"]).value)
        ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([*x.shape, count]), FLOAT)


def regressor(_library: Any, ctx: Any, node: ir.Node) -> None:
    """Rows, by targets."""
    targets = node.attributes.get_int("targets", 1)
    shape = ir.Shape([_rows(ctx, node.inputs[0]), targets])
    ctx.set_shape_and_dtype(node.outputs[0], shape, FLOAT)


def linear_classifier(_library: Any, ctx: Any, node: ir.Node) -> None:
    """One label per row, and rows by classes."""
    rows, given = _rows(ctx, node.inputs[0]), node.attributes
    text = "classlabels_strings" in given
    labels = given["classlabels_strings" if text else "classlabels_ints"].value
    dtype = ir.DataType.STRING if text else ir.DataType.INT64
    ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([rows]), dtype)
    if len(node.outputs) > 1:
        ctx.set_shape_and_dtype(node.outputs[1], ir.Shape([rows, len(labels)]), FLOAT)


def array_feature_extractor(_library: Any, ctx: Any, node: ir.Node) -> None:
    """As x, with one column per index; a vector is one row."""
    x, indices = node.inputs
    if x is None or x.shape is None or indices is None or indices.shape is None:
        return
    rows = list(x.shape)[:-1] if len(x.shape) > 1 else [1]
    several = [size for size in indices.shape if size != 1]
    known = all(isinstance(size, int) for size in several)
    if len(several) == 1:
        count = several[0]
    else:
        count = math.prod(several) if known else ctx.new_symbolic_dim()
    ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([*rows, count]), x.dtype)


def tree_ensemble(_library: Any, ctx: Any, node: ir.Node) -> None:
    """Rows of x, by targets."""
    x = node.inputs[0]
    if x is not None and x.shape is not None:
        targets = node.attributes["n_targets"].as_int()
        ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([x.shape[0], targets]), x.dtype)
