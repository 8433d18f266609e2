"""Bits seen as another type, and updates of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import Window, kernel
from gradtool.ops.shared.types import Array, Arrays


def _whole(x: Spec, strides: tuple[int, ...]) -> Sequence[Window]:
    return [(0, strides)]


@kernel("BitCast", view=_whole)
def bit_cast(xp: Any, x: Array, *, out: Arrays, to: int) -> None:
    """The same bits as a type of the same size."""
    xp.copyto(out[0], x.view(out[0].dtype))


@kernel("TensorScatter", host=(2,), may_inplace=(0,))
def tensor_scatter(
    xp: Any,
    past: Array,
    update: Array,
    starts: Array | None = None,
    *,
    out: Arrays,
    mode: str = "linear",
    axis: int = -2,
) -> None:
    """`past`, with `update` written at `starts[batch]` along an axis.

    Circular: elements beyond the end go on at the beginning.
    """
    y = out[0]
    if not xp.may_share_memory(past, y):
        xp.copyto(y, past)
    axis %= y.ndim
    count, size = update.shape[axis], y.shape[axis]
    starts = np.zeros(len(y), np.int64) if starts is None else starts
    for cache, new, start in zip(y, update, starts.tolist(), strict=True):
        target, source = cache.swapaxes(0, axis - 1), new.swapaxes(0, axis - 1)
        if mode == "circular":
            start %= size  # noqa: PLW2901
        elif start + count > size:
            raise IndexError(f"{count} elements from {start} in an axis of {size}")
        until = min(count, size - start)
        target[start : start + until] = source[:until]
        target[: count - until] = source[until:]


@kernel("ai.gradtool::TensorScatterGrad", host=(1, 2))
def tensor_scatter_grad(
    xp: Any,
    dy: Array,
    shape: Array,
    starts: Array | None = None,
    *,
    out: Arrays,
    mode: str = "linear",
    axis: int = -2,
) -> None:
    """Elements of `dy` at the places of the update."""
    axis %= dy.ndim
    made = out[0]
    count, size = made.shape[axis], dy.shape[axis]
    starts = np.zeros(len(dy), np.int64) if starts is None else starts
    for cache, new, start in zip(dy, made, starts.tolist(), strict=True):
        source, target = cache.swapaxes(0, axis - 1), new.swapaxes(0, axis - 1)
        first = start % size if mode == "circular" else start
        until = min(count, size - first)
        target[:until] = source[first : first + until]
        target[until:] = source[: count - until]
