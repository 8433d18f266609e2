"""TreeEnsemble: decision trees over the columns of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.ops.kernels import kernel
from gradtool.ops.ml.kernel_linear import TRANSFORMS, transformed
from gradtool.ops.shared.types import Array, Arrays

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
