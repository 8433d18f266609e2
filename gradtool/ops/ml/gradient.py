"""Gradients of the operators of ai.onnx.ml that stand in the way of differentiable ones."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Node, Tensor
from gradtool.ops.gradients import Gradients, gradient, zero_gradient

# Constant between their thresholds.
zero_gradient(
    "ai.onnx.ml::Binarizer",
    "ai.onnx.ml::LabelEncoder",
    "ai.onnx.ml::OneHotEncoder",
    "ai.onnx.ml::TreeEnsemble",
)


@gradient("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = x[..., i]`, a vector as a matrix of one row:  dx adds up dy at the indices."""
    x, indices = node.inputs
    rows = op.reshape(dy, [-1, dy.shape[-1]])
    zeros = op.zeros_like(x)
    flat = op.reshape(zeros, [-1, x.shape[-1]])
    places = op.Expand(op.reshape(indices, [1, -1]), op.shape(rows))
    added = op.ScatterElements(flat, places, rows, axis=1, reduction="add")
    return op.reshape_like(added, x), None
