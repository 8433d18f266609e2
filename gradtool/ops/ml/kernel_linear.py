"""Linear models and support vectors over the rows of a matrix, and transforms of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays, Specs

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
# Below this a score counts as zero.
TINY = 1e-7


def transformed(xp: Any, y: Array, name: str) -> Array:
    """Nothing, softmax, logistic, softmax of what isn't zero, or the probit function."""
    if name in ("SOFTMAX", "SOFTMAX_ZERO"):
        powers = xp.exp(y - y.max(axis=1, keepdims=True))
        if name == "SOFTMAX_ZERO":
            powers = xp.where(abs(y) <= TINY, 0, powers)
        return powers / powers.sum(axis=1, keepdims=True)
    if name == "LOGISTIC":
        return 1 / (1 + xp.exp(-y))
    if name == "PROBIT":
        if xp is np:
            from scipy.special import ndtri
        else:
            from cupyx.scipy.special import ndtri
        return ndtri(y)
    return y


def _matrix(x: Array) -> Array:
    """A matrix of floats; a vector is one row."""
    x = x.reshape(1, -1) if x.ndim == 1 else x
    return x if x.dtype.kind == "f" else x.astype(np.float32)


def _affine(
    xp: Any, x: Array, coefficients: Sequence[float], intercepts: Sequence[float] | None, count: int
) -> Array:
    """`x · wᵀ + b`, one row of w per score."""
    x = _matrix(x)
    scores = x @ xp.asarray(coefficients, x.dtype).reshape(count, -1).T
    return scores + xp.asarray(intercepts, x.dtype) if intercepts else scores


def _of_scores(x: Spec, *, out: Specs, targets: int = 1, **_: Any) -> int:
    rows = x.shape[0] if len(x.shape) > 1 else 1
    return 8 * (int(np.prod(x.shape)) + 4 * rows * targets)


@kernel("ai.onnx.ml::LinearRegressor", temporaries=_of_scores)
def linear_regressor(
    xp: Any, x: Array, *, coefficients: Sequence[float] = (),
    intercepts: Sequence[float] | None = None, targets: int = 1, post_transform: str = "NONE",
) -> Array:  # fmt: skip
    """`x · wᵀ + b`, transformed; of a single target only the probit is taken."""
    scores = _affine(xp, x, coefficients, intercepts, targets)
    alone = targets == 1 and post_transform != "PROBIT"
    return transformed(xp, scores, "NONE" if alone else post_transform)


def _of_classes(
    x: Spec, *,
    out: Specs, classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
) -> int:  # fmt: skip
    return _of_scores(x, out=out, targets=len(classlabels_ints or classlabels_strings))


@kernel("ai.onnx.ml::LinearClassifier", temporaries=_of_classes)
def linear_classifier(
    xp: Any, x: Array, *,
    coefficients: Sequence[float], intercepts: Sequence[float] | None = None,
    classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
    post_transform: str = "NONE", multi_class: int = 0,
) -> tuple[Array, Array]:  # fmt: skip
    """The label of the largest score, and the scores; a single score s is that of the second class.

    The first then has 1 - s, or the logistic function of -s.
    """
    labels: Sequence[Any] = classlabels_ints or classlabels_strings
    scores = _affine(xp, x, coefficients, intercepts, len(intercepts or labels))
    best = xp.argmax(scores, axis=1)
    if scores.shape[1] < len(labels):
        best = (scores[:, 0] > 0).astype(np.int64)
        opposite = -scores if post_transform == "LOGISTIC" else 1 - scores
        scores = xp.concatenate([opposite, scores], axis=1)
        post_transform = "NONE" if "SOFTMAX" in post_transform else post_transform
    return _named(xp, labels, best), transformed(xp, scores, post_transform)


def _named(xp: Any, labels: Sequence[Any], best: Array) -> Array:
    if isinstance(labels[0], int):
        return xp.asarray(labels, np.int64)[best]
    names = [name.decode() if isinstance(name, bytes) else name for name in labels]
    return np.array(names, dtype=object)[best if xp is np else best.get()]


def _of_vectors(x: Spec, *, out: Specs, n_supports: int = 0) -> int:
    return _of_scores(x, out=out, targets=n_supports + 1)


@kernel("ai.onnx.ml::SVMRegressor", temporaries=_of_vectors)
def svm_regressor(
    xp: Any, x: Array, *,
    coefficients: Sequence[float], rho: Sequence[float], support_vectors: Sequence[float] = (),
    n_supports: int = 0, kernel_type: str = "LINEAR", kernel_params: Sequence[float] = (),
    one_class: int = 0, post_transform: str = "NONE",
) -> Array:  # fmt: skip
    """`Σ c · k(x, v) + ρ` over the support vectors v, or its sign; `x · c + ρ` without vectors.

    A single score is not transformed.
    """
    x = _matrix(x)
    weights = xp.asarray(coefficients, x.dtype).reshape(-1, 1)
    if n_supports:
        vectors = xp.asarray(support_vectors, x.dtype).reshape(n_supports, -1)
        x = similarity(xp, x, vectors, kernel_type, *(kernel_params or (0, 0, 0)))
    scores = x @ weights + x.dtype.type(rho[0])
    return xp.where(scores > 0, 1, -1) if one_class else scores


def similarity(
    xp: Any, x: Array, vectors: Array, kind: str, gamma: float, offset: float, degree: float
) -> Array:
    """k(x, v) of each row and vector:  x·v, (γ x·v + o)ᵈ, tanh(γ x·v + o) or exp(-γ |x-v|²)."""
    dot = x @ vectors.T
    if kind == "LINEAR":
        return dot
    if kind == "RBF":
        squares = (x * x).sum(axis=1, keepdims=True) + (vectors * vectors).sum(axis=1)
        return xp.exp(-gamma * (squares - 2 * dot))
    inner = gamma * dot + offset
    return inner**degree if kind == "POLY" else xp.tanh(inner)


LEAST_EQUAL, LESS, GREATEST_EQUAL, GREATER, EQUAL, UNEQUAL, MEMBER = range(7)
COMPARE = {
    LEAST_EQUAL: np.less_equal,
    LESS: np.less,
    GREATEST_EQUAL: np.greater_equal,
    GREATER: np.greater,
    EQUAL: np.equal,
    UNEQUAL: np.not_equal,
}
AVERAGE, SUM, MIN, MAX = range(4)


@kernel("ai.onnx.ml::TreeEnsemble", host=(0,), on_device=False)
def tree_ensemble(
    xp: Any, x: Array, *,
    nodes_splits: Array, nodes_featureids: Sequence[int], nodes_modes: Array,
    nodes_truenodeids: Sequence[int], nodes_falsenodeids: Sequence[int],
    nodes_trueleafs: Sequence[int], nodes_falseleafs: Sequence[int], leaf_targetids: Sequence[int],
    leaf_weights: Array, tree_roots: Sequence[int], n_targets: int = 1,
    aggregate_function: int = SUM, post_transform: int = 0,
    nodes_missing_value_tracks_true: Array | None = None, membership_values: Array | None = None,
    nodes_hitrates: Array | None = None,
) -> Array:  # fmt: skip
    """Aggregate, by row and target, the weights of the leaves reached in all trees."""
    members = _members(nodes_modes, membership_values)
    start = {MIN: np.inf, MAX: -np.inf}.get(aggregate_function, 0)
    y = np.full((len(x), n_targets), start, dtype=np.float64)
    combine = {MIN: np.minimum, MAX: np.maximum}.get(aggregate_function, np.add)

    def add(leaf: int, rows: Array) -> None:
        share = len(tree_roots) if aggregate_function == AVERAGE else 1
        target = leaf_targetids[leaf]
        y[rows, target] = combine(y[rows, target], leaf_weights[leaf] / share)

    def descend(node: int, rows: Array) -> None:
        """Send rows down from a node to the leaves that they reach."""
        column = x[rows, nodes_featureids[node]]
        if nodes_modes[node] == MEMBER:
            goes = np.isin(column, members[node])
        else:
            goes = COMPARE[nodes_modes[node]](column, nodes_splits[node])
        if nodes_missing_value_tracks_true is not None and nodes_missing_value_tracks_true[node]:
            goes |= np.isnan(column)
        for chosen, to, leaf in (
            (rows[goes], nodes_truenodeids[node], nodes_trueleafs[node]),
            (rows[~goes], nodes_falsenodeids[node], nodes_falseleafs[node]),
        ):
            if len(chosen):
                (add if leaf else descend)(to, chosen)

    for root in tree_roots:
        descend(root, np.arange(len(x)))
    return transformed(np, y, TRANSFORMS[post_transform]).astype(x.dtype)


def _members(modes: Array, values: Array | None) -> dict[int, Arrays]:
    """The set of each node that tests membership; NaN ends a set."""
    sets: list[list[Array]] = []
    current: list[Array] = []
    for value in () if values is None else np.ravel(values):
        if np.isnan(value):
            sets.append(current)
            current = []
        else:
            current.append(value)
    nodes = [n for n, mode in enumerate(modes) if mode == MEMBER]
    return dict(zip(nodes, sets, strict=False))
