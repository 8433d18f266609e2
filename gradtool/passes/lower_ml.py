"""Linear models and scalers of ai.onnx.ml in standard operators.

The weights of models, attributes there, become trainable initializers: `coefficients` of shape
`[features, scores]`, and `intercepts`.  Offsets and factors of scalers stay constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.attributes import arguments
from gradtool.graph.families import ML as DOMAIN
from gradtool.graph.training_info import add_location
from gradtool.losses.choice import REGRESSION
from gradtool.passes.lower_contrib import Rule, replace

FLOAT = ir.DataType.FLOAT
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC")  # PROBIT and SOFTMAX_ZERO have no operators


@dataclass(frozen=True)
class Lowered:
    """The weights made of attributes, and lines for people."""

    weights: tuple[ir.Value, ...] = ()
    said: tuple[str, ...] = ()


def lower_ml(op: Builder) -> Lowered:
    """Replace the linear models and scalers of the builder's model, in place.

    Types and shapes must have been inferred.
    """
    graph, said = op.model.graph, []
    weights: list[ir.Value] = []
    rules: dict[str, Rule] = {
        "LinearClassifier": _Weighted(_classifier, weights),
        "LinearRegressor": _Weighted(_regressor, weights),
        "Scaler": _scaler,
    }
    for node in [n for n in graph if n.domain == DOMAIN and n.op_type in rules]:
        transform = node.attributes.get_string("post_transform", "NONE")
        if node.op_type == "Scaler" or (transform in TRANSFORMS and _has_rows(node)):
            replace(op, node, rules[node.op_type])
        else:
            said.append(f"{node.op_type} {node.name!r}: {transform}: its weights stay constants")
    if not any(node.domain == DOMAIN for node in walk.nodes(graph)):
        graph.opset_imports.pop(DOMAIN, None)
    return Lowered(tuple(weights), tuple(said))


def _scaler(op: Any, node: ir.Node) -> list[ir.Value | None]:
    """`(x - offset) · scale`."""
    given, x = arguments(node), op.cast(node.inputs[0], FLOAT)
    offset, scale = (
        np.asarray(given.get(name, (default,)), np.float32)
        for name, default in (("offset", 0.0), ("scale", 1.0))
    )
    return [(x - op.constant(offset)) * op.constant(scale)]


@dataclass(frozen=True)
class _Weighted:
    """A rule for a model whose weights are noted in `made`."""

    rule: Callable[[Any, ir.Node, Weights], Sequence[ir.Value | None]]
    made: list[ir.Value]

    def __call__(self, op: Any, node: ir.Node) -> Sequence[ir.Value | None]:
        """Replacements of the node's outputs."""
        given = arguments(node)
        rows = np.asarray(given["coefficients"], np.float32).reshape(_counts(node)[0], -1)
        bias = given.get("intercepts")
        weights = Weights(rows.T, np.asarray(bias, np.float32) if bias else None, self.made)
        return self.rule(op, node, weights)


@dataclass(frozen=True)
class Weights:
    """Coefficients by features and scores, and intercepts by scores if there are some."""

    coefficients: np.ndarray[Any, Any]
    intercepts: np.ndarray[Any, Any] | None
    made: list[ir.Value]
    mirrored: bool = False  # the file has the opposite of them before them

    def lone(self) -> Weights:
        """The weights of the second score alone if the first is its opposite, else all."""
        w, b = self.coefficients, self.intercepts
        opposite = w.shape[1] == 2 and np.array_equal(w[:, :1], -w[:, 1:])
        if not opposite or (b is not None and b[0] != -b[1]):
            return self
        return Weights(w[:, 1:], None if b is None else b[1:], self.made, mirrored=True)

    def affine(self, op: Any, node: ir.Node) -> Any:
        """`x · w + b`; a vector is one row, and numbers of any type are taken as float32."""
        x: Any = node.inputs[0]
        x = op.cast(x if len(x.shape) > 1 else op.reshape(x, [1, -1]), FLOAT)
        y = op.MatMul(x, self._parameter(op, node, "coefficients", self.coefficients))
        if self.intercepts is None:
            return y
        return y + self._parameter(op, node, "intercepts", self.intercepts)

    def _parameter(
        self, op: Any, node: ir.Node, name: str, array: np.ndarray[Any, Any]
    ) -> ir.Value:
        tensor = ir.Tensor(np.ascontiguousarray(array), name=op.names.fresh(name))
        made: ir.Value = op.initializer(tensor)
        self.made.append(made)
        add_location(op.model, made.name or "", node, attribute=name, mirrored=self.mirrored)
        return made


def _has_rows(node: ir.Node) -> bool:
    """Whether the attributes hold one row of coefficients per score, and a score per class."""
    x, given = node.inputs[0], arguments(node)
    if x is None or x.shape is None or not isinstance(x.shape[-1], int):
        return False
    scores, classes = _counts(node)
    return len(given.get("coefficients", ())) == scores * x.shape[-1] and (
        scores == classes or (scores == 1 and classes == 2)
    )


def _counts(node: ir.Node) -> tuple[int, int]:
    """The number of scores, and of classes or targets."""
    given = arguments(node)
    if node.op_type == "LinearRegressor":
        targets = given.get("targets", 1)
        return targets, targets
    classes = len(_classes(node))
    return len(given.get("intercepts") or range(classes)), classes


def _classes(node: ir.Node) -> Sequence[Any]:
    given = arguments(node)
    found: Sequence[Any] = given.get("classlabels_ints") or given["classlabels_strings"]
    return found


def _regressor(op: Any, node: ir.Node, weights: Weights) -> list[ir.Value | None]:
    """`y = x · w + b`, transformed if there are several targets."""
    y = weights.affine(op, node)
    transform = node.attributes.get_string("post_transform", "NONE")
    if _counts(node)[0] == 1 or transform == "NONE":
        y.meta[REGRESSION] = True
        return [y]
    return [_transformed(op, y, transform)]


def _classifier(op: Any, node: ir.Node, weights: Weights) -> list[ir.Value | None]:
    """`(label of the largest score, scores)`, transformed.

    Two classes of one logistic score s, also where the file holds the first one's as -s, are the
    softmax of 0 and s.
    """
    transform = node.attributes.get_string("post_transform", "NONE")
    weights = weights.lone() if transform == "LOGISTIC" else weights
    s = weights.affine(op, node)
    if weights.coefficients.shape[1] == len(_classes(node)):
        best = op.ArgMax(s, axis=1, keepdims=0)
        return [_label(op, node, best), _transformed(op, s, transform)]
    best = op.reshape(op.cast(op.Greater(s, 0.0), ir.DataType.INT64), [-1])
    if transform == "LOGISTIC":
        both = op.Softmax(op.Concat(op.zeros_like(s), s, axis=1), axis=1)
    else:
        both = op.Concat(1.0 - s, s, axis=1)
    return [_label(op, node, best), both]


def _transformed(op: Any, scores: Any, transform: str) -> Any:
    if transform == "SOFTMAX":
        return op.Softmax(scores, axis=1)
    return op.Sigmoid(scores) if transform == "LOGISTIC" else scores


def _label(op: Any, node: ir.Node, index: Any) -> ir.Value | None:
    """The class of each index, if anybody reads it."""
    wanted = node.outputs[0]
    if not wanted.uses() and not wanted.is_graph_output():
        return None
    classes = _classes(node)
    if isinstance(classes[0], int):
        table = op.constant(np.asarray(classes, np.int64))
    else:
        table = _names(op, classes)
    made: ir.Value = op.Gather(table, index)
    return made


def _names(op: Any, classes: Sequence[Any]) -> ir.Value:
    """A table of strings."""
    names = [name.encode() if isinstance(name, str) else name for name in classes]
    tensor = ir.StringTensor(names, shape=ir.Shape([len(names)]), name=op.names.fresh("classes"))
    made: ir.Value = op.initializer(tensor)
    return made
