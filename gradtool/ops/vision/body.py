"""Composites of the vision family."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor, ints


def _theta(dy: Tensor, size: Tensor, **attributes: Any) -> Outputs:
    rank = dy.shape[-1]
    return [((dy.shape[0], rank, rank + 1), dy.dtype)]


@composite("AffineGridGrad", shapes=_theta)
def affine_grid_grad(op: Builder, dy: Tensor, size: Tensor, *, align_corners: int = 0) -> Tensor:
    """`dtheta[n] = Σ dy[n, p] ⊗ (points[p], 1)`, the points being the grid of the identity."""
    rank = ints(dy.shape)[-1]
    identity = op.constant(np.eye(rank, rank + 1, dtype=dy.dtype.numpy())[None])
    one = op.Concat([1], op.Slice(size, [1], [rank + 2], [0]), axis=0)
    points = op.AffineGrid(identity, one, align_corners=align_corners)
    points = op.Reshape(points, [-1, rank])
    flat = op.reshape(dy, [dy.shape[0], -1, rank])
    turned = op.MatMul(op.Transpose(flat, perm=[0, 2, 1]), points)
    moved = op.Unsqueeze(op.ReduceSum(flat, [1], keepdims=0), [2])
    return op.Concat(turned, moved, axis=2)
