"""TreeEnsemble: decision trees over the columns of a matrix."""

from __future__ import annotations

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels._ml_linear import TRANSFORMS, transformed

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


@kernel("ai.onnx.ml::TreeEnsemble", host=(0,))
def tree_ensemble(
    xp, x, *, nodes_splits, nodes_featureids, nodes_modes, nodes_truenodeids, nodes_falsenodeids,
    nodes_trueleafs, nodes_falseleafs, leaf_targetids, leaf_weights, tree_roots, n_targets=1,
    aggregate_function=SUM, post_transform=0, nodes_missing_value_tracks_true=None,
    membership_values=None, nodes_hitrates=None,
):  # fmt: skip
    """What the leaf that each row reaches in each tree adds to its target."""
    members = _members(nodes_modes, membership_values)
    start = {MIN: np.inf, MAX: -np.inf}.get(aggregate_function, 0)
    y = np.full((len(x), n_targets), start, dtype=np.float64)
    combine = {MIN: np.minimum, MAX: np.maximum}.get(aggregate_function, np.add)

    def add(leaf, rows):
        share = len(tree_roots) if aggregate_function == AVERAGE else 1
        target = leaf_targetids[leaf]
        y[rows, target] = combine(y[rows, target], leaf_weights[leaf] / share)

    def descend(node, rows):
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


def _members(modes, values):
    """The set of each node that tests membership; NaN ends a set."""
    sets, current = [], []
    for value in () if values is None else np.ravel(values):
        if np.isnan(value):
            sets.append(current)
            current = []
        else:
            current.append(value)
    nodes = [n for n, mode in enumerate(modes) if mode == MEMBER]
    return dict(zip(nodes, sets, strict=False))
