"""Col2Im: blocks of an image as columns; reversed sequences, bits as another type, caches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays, Index


def _overlaps(
    image: Sequence[int],
    block: Sequence[int],
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Iterator[tuple[tuple[int, ...], Index, Index, list[int]]]:
    """`(offset, places, pixels, counts)` for each offset within a block.

    The blocks at `places` have their element `offset` at `pixels`: slices, one for each axis.
    There are `counts` blocks along the axes.
    """
    rank = len(image)
    dilations, strides = dilations or [1] * rank, strides or [1] * rank
    pads = pads or [0] * 2 * rank
    counts = [
        (image[a] + pads[a] + pads[rank + a] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1
        for a in range(rank)
    ]
    for offset in itertools.product(*map(range, block)):
        places, pixels = [], []
        for a in range(rank):
            shift = offset[a] * dilations[a] - pads[a]
            first = max(0, -(shift // strides[a]))
            last = max(first, min(counts[a], (image[a] - 1 - shift) // strides[a] + 1))
            start = first * strides[a] + shift
            places.append(slice(first, last))
            pixels.append(slice(start, start + (last - first) * strides[a], strides[a]))
        yield offset, tuple(places), tuple(pixels), counts


def _columns(x: Array, channels: int, block: Sequence[int], counts: Sequence[int]) -> Array:
    """`x[N, C · block, blocks]` as `[N, C, *block, *blocks]`."""
    return x.reshape(len(x), channels, *block, *counts)


@kernel("Col2Im", host=(1, 2))
def col2im(
    xp: Any, x: Array, image: Array, block: Array, *, out: Arrays, **attributes: Any
) -> None:
    """The sum of all blocks, each at its place in the image."""
    y = out[0]
    y.fill(0)
    block = np.ravel(block).tolist()
    for offset, places, pixels, counts in _overlaps(y.shape[2:], block, **attributes):
        window = y[:, :, *pixels]
        xp.add(window, _columns(x, y.shape[1], block, counts)[:, :, *offset, *places], out=window)


@kernel("ai.gradtool::Col2ImGrad", host=(1,))
def col2im_grad(xp: Any, dy: Array, block: Array, *, out: Arrays, **attributes: Any) -> None:
    """The blocks of dy; zero where a block reaches over the border."""
    dx = out[0]
    dx.fill(0)
    block = np.ravel(block).tolist()
    for offset, places, pixels, counts in _overlaps(dy.shape[2:], block, **attributes):
        columns = _columns(dx, dy.shape[1], block, counts)
        xp.copyto(columns[:, :, *offset, *places], dy[:, :, *pixels])


@kernel("ReverseSequence", host=(1,), strided=True)
def reverse_sequence(
    xp: Any, x: Array, lengths: Array, *, out: Arrays, batch_axis: int = 1, time_axis: int = 0
) -> None:
    """The first `lengths[b]` elements of each sequence in reverse order, the rest as it is."""
    y = xp.moveaxis(out[0], (batch_axis, time_axis), (0, 1))
    x = xp.moveaxis(x, (batch_axis, time_axis), (0, 1))
    for given, written, length in zip(x, y, np.ravel(lengths).tolist(), strict=True):
        xp.copyto(written[:length], given[:length][::-1])
        xp.copyto(written[length:], given[length:])


@kernel("BitCast", view=lambda x, strides: [(0, strides)])
def bit_cast(xp: Any, x: Array, *, out: Arrays, to: int) -> None:
    """The same bits as a type of the same size."""
    xp.copyto(out[0], x.view(out[0].dtype))


@kernel("TensorScatter", host=(2,), may_inplace=(0,))
def tensor_scatter(
    xp: Any, past: Array, update: Array, starts: Array | None = None, *,
    out: Arrays, mode: str = "linear", axis: int = -2,
) -> None:  # fmt: skip
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
    xp: Any, dy: Array, shape: Array, starts: Array | None = None, *,
    out: Arrays, mode: str = "linear", axis: int = -2,
) -> None:  # fmt: skip
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
