"""Transforms as bodies need them: of a length that may be computed, at any opset."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.constants import integers
from gradtool.graph.typed import Dim, Tensor


def transform(op: Builder, x: Tensor, length: Tensor, axis: int, **options: Any) -> Tensor:
    """`DFT`, whose axis is an input from opset 20 on."""
    if op.opset >= 20:
        return op.DFT(x, length, op.constant(axis), **options)
    return op.DFT(x, length, axis=axis, **options)


def scalar(op: Builder, dim: Dim) -> Tensor:
    """A size as a scalar."""
    return op.constant(dim) if isinstance(dim, int) else op.Squeeze(op.size(dim), [0])


def number(op: Builder, length: Tensor, dtype: ir.DataType) -> Tensor:
    """An integer as a float of `dtype`."""
    known = integers(length)
    if known is not None:
        return op.constant(np.asarray(known[0], dtype.numpy()))
    return op.cast(length, dtype)


def fit(op: Builder, x: Tensor, axis: int, size: Dim) -> Tensor:
    """`x` with `size` elements along an axis: cut, or filled up with zeros."""
    have = x.shape[axis]
    if have == size:
        return x
    wanted = op.size(size)
    if not (isinstance(have, int) and isinstance(size, int) and have > size):
        missing = op.Max(op.Sub(wanted, op.size_of(x, axis, axis + 1)), [0])
        x = op.pad(x, op.Concat([0], missing, axis=0), [axis])
    return op.Slice(x, [0], wanted, [axis])


def real_part(op: Builder, x: Tensor, channels: Dim) -> Tensor:
    """The first of the last axis if there is only one channel to go to, else both."""
    return x if channels == 2 else op.Slice(x, [0], op.size(channels), [-1])


def count_of(op: Builder, length: Tensor | None, dim: Dim, *, halved: int) -> Tensor:
    """The length of a transform as a scalar: as given, else from the size of its input."""
    if length is not None:
        return op.Squeeze(length) if len(length.shape) else length
    if isinstance(dim, int):
        return op.constant(2 * (dim - 1) if halved else dim)
    size = scalar(op, dim)
    return op.Mul(op.Sub(size, 1), 2) if halved else size
