"""Composites of the vision family."""

from __future__ import annotations

import numpy as np

from gradtool.functions import (
    _rois,  # noqa: F401 - it registers
    _rois_max,  # noqa: F401 - it registers
    _sampling,  # noqa: F401 - it registers
    composite,
)


def _theta(dy, size, **attributes):
    rank = dy.shape[-1]
    return [((dy.shape[0], rank, rank + 1), dy.dtype)]


@composite("AffineGridGrad", shapes=_theta)
def affine_grid_grad(op, dy, size, *, align_corners=0):
    """`dtheta[n] = Σ dy[n, p] ⊗ (points[p], 1)`, the points being the grid of the identity."""
    rank = dy.shape[-1]
    identity = op.constant(np.eye(rank, rank + 1, dtype=dy.dtype.numpy())[None])
    one = op.Concat([1], op.Slice(size, [1], [rank + 2], [0]), axis=0)
    points = op.AffineGrid(identity, one, align_corners=align_corners)
    points = op.Reshape(points, [-1, rank])
    flat = op.reshape(dy, [dy.shape[0], -1, rank])
    turned = op.MatMul(op.Transpose(flat, perm=[0, 2, 1]), points)
    moved = op.Unsqueeze(op.ReduceSum(flat, [1], keepdims=0), [2])
    return op.Concat(turned, moved, axis=2)
