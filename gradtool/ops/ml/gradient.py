"""Gradients of the operators of ai.onnx.ml that stand in the way of differentiable ones."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.attributes import arguments
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


FLOAT = ir.DataType.FLOAT


def _like(op: Builder, dx: Tensor, x: Tensor) -> Tensor:
    """A gradient in the shape and type of x, where x is a vector or not of single precision."""
    return op.cast(op.reshape_like(dx, x), x.dtype)


@gradient("ai.onnx.ml::Scaler")
def scaler(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = (x - offset) · scale`:  dx = dy · scale."""
    scale = np.asarray(arguments(node).get("scale", (1.0,)), np.float32)
    return op.cast(dy * op.constant(scale), node.inputs[0].dtype)


@gradient("ai.onnx.ml::Imputer")
def imputer(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x`, constant where x stands for a missing value:  dx = dy elsewhere."""
    replaced = node.attributes.get_float("replaced_value_float", 0.0)
    x = node.inputs[0]
    missing = op.IsNaN(x) if math.isnan(replaced) else op.Equal(x, replaced)
    return op.Where(missing, 0.0, dy)


@gradient("ai.onnx.ml::Normalizer")
def normalizer(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x / n(x)`:  dx = (dy - n' · Σ dy · y) / n, and dy where n = 0.

    n' is sign x of Σ |x|, y of √Σ x²; of the maximum it is 1/k at the k largest elements.
    """
    x, y = op.cast(node.inputs[0], FLOAT), node.outputs[0]
    norm = node.attributes.get_string("norm", "MAX")
    if norm == "MAX":
        n = op.ReduceMax(x, [-1], keepdims=1)
        largest = op.cast(op.Equal(x, n), FLOAT)
        none = op.Equal(n, 0.0)
        slope = op.Where(none, 0.0, largest / op.sum(largest, [-1], keepdims=True))
    else:
        n = op.ReduceL1(x, [-1], keepdims=1) if norm == "L1" else op.ReduceL2(x, [-1], keepdims=1)
        none = op.Equal(n, 0.0)
        slope = op.Sign(x) if norm == "L1" else y
    along = op.sum(dy * y, [-1], keepdims=True)
    return op.cast((dy - slope * along) / op.Where(none, 1.0, n), node.inputs[0].dtype)


@gradient("ai.onnx.ml::FeatureVectorizer")
def feature_vectorizer(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """Columns side by side:  dx is the columns of dy that x went to, 0 for those cut off."""
    made, start = [], 0
    for x, count in zip(node.inputs, arguments(node)["inputdimensions"], strict=True):
        columns = math.prod(x.shape[1:]) if len(x.shape) > 1 else x.shape[0]
        columns = columns if isinstance(columns, int) else count
        taken = min(columns, count)
        dx = op.slice(dy, 1, start, start + taken)
        if taken < columns:
            dx = op.Pad(dx, [0, 0, 0, columns - taken])
        made.append(_like(op, dx, x))
        start += count
    return made


@gradient("ai.onnx.ml::LinearRegressor")
def linear_regressor(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = f(x · wᵀ + b)`:  dx = f' · dy · w."""
    given = arguments(node)
    count, name = given.get("targets", 1), given.get("post_transform", "NONE")
    weights = np.asarray(given["coefficients"], np.float32).reshape(count, -1)
    name = "NONE" if count == 1 and name != "PROBIT" else name
    dx = op.MatMul(_untransformed(op, name, node.outputs[0], dy), op.constant(weights))
    return _like(op, dx, node.inputs[0])


@gradient("ai.onnx.ml::LinearClassifier")
def linear_classifier(op: Builder, node: Node, _dlabels: Tensor | None, dz: Tensor) -> Tensor:
    """`z = f(x · wᵀ + b)`:  dx = f' · dz · w; a lone w is the second class's, -w the first's."""
    given = arguments(node)
    labels = given.get("classlabels_ints") or given["classlabels_strings"]
    count, name = len(given.get("intercepts") or labels), given.get("post_transform", "NONE")
    weights = np.asarray(given["coefficients"], np.float32).reshape(count, -1)
    if count < len(labels):
        weights = np.concatenate([-weights, weights])
        name = "NONE" if "SOFTMAX" in name else name
    dx = op.MatMul(_untransformed(op, name, node.outputs[1], dz), op.constant(weights))
    return _like(op, dx, node.inputs[0])


def _untransformed(op: Builder, name: str, y: Tensor, dy: Tensor) -> Tensor:
    """The gradient of the scores before they are transformed to y."""
    if name == "LOGISTIC":
        return op.SigmoidGrad(y, dy)
    if name == "PROBIT":
        return dy * op.Exp(y * y * 0.5) * math.sqrt(2 * math.pi)
    return dy if name == "NONE" else op.SoftmaxGrad(y, dy, axis=-1)


@gradient("ai.onnx.ml::SVMRegressor")
def svm_regressor(op: Builder, node: Node, dy: Tensor) -> Tensor | None:
    """`y = Σ c · k(x, v) + ρ`:  dx = dy · Σ c · k', and zero of a sign.

    With `t = γ x·v + o`: k' = v, γ d tᵈ⁻¹ v, γ (1 - tanh² t) v, or 2γ exp(-γ |x-v|²) (v - x).
    """
    x, given = node.inputs[0], arguments(node)
    if given.get("one_class", 0):
        return None
    weights = np.asarray(given["coefficients"], np.float32).reshape(1, -1)
    count, kind = given.get("n_supports", 0), given.get("kernel_type", "LINEAR")
    if not count:
        return _like(op, op.MatMul(dy, op.constant(weights)), x)
    v = np.asarray(given["support_vectors"], np.float32).reshape(count, -1)
    if kind == "LINEAR":
        return _like(op, op.MatMul(dy, op.constant(weights @ v)), x)
    gamma, offset, degree = given["kernel_params"]
    rows = op.reshape(op.cast(x, FLOAT), [-1, v.shape[1]])
    dot = op.MatMul(rows, op.constant(np.ascontiguousarray(v.T)))
    if kind == "RBF":
        squares = op.sum(rows * rows, [1], keepdims=True) + op.constant((v * v).sum(axis=1))
        slope = op.Exp((squares - dot * 2.0) * -gamma) * 2.0
    elif kind == "POLY":
        slope = op.Pow(dot * gamma + offset, degree - 1) * degree
    else:
        slope = 1.0 - op.Pow(op.Tanh(dot * gamma + offset), 2.0)
    each = dy * op.constant(weights * np.float32(gamma)) * slope
    dx = op.MatMul(each, op.constant(v))
    if kind == "RBF":
        dx = dx - rows * op.sum(each, [1], keepdims=True)
    return _like(op, dx, x)
