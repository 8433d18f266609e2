"""Pad, its gradient, and CenterCropPad.

A padded axis is cut into runs: pieces that copy neighbours, in order, backwards, or one again and
again.  There are few of them, so that no table of positions is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.shape.kernel_views import along
from gradtool.ops.shared.types import Array, Arrays, Index, Specs


def _origins(size: int, border: tuple[int, int], mode: str) -> Array:
    """Index of the element at each place of the padded axis; -1 where a constant is.

    Wrapping repeats the elements left by a negative pad.
    """
    before, after = border
    places = np.arange(-before, size + after)
    if mode == "edge":
        return np.clip(places, 0, size - 1)
    if mode == "wrap":
        first, end = max(0, -before), size + min(0, after)
        if len(places) and end <= first:
            raise ValueError(f"pads of {before} and {after} leave nothing of {size} to wrap around")
        return first + (places - first) % max(1, end - first)
    if mode == "reflect":
        turned = places % max(2 * (size - 1), 1)
        return np.minimum(turned, 2 * (size - 1) - turned)
    return np.where((places < 0) | (places >= size), -1, places)


def _runs(origins: Array) -> list[tuple[slice, slice]]:
    """`(places, elements)`, two slices of equal length or an element to repeat, piece by piece."""
    found = []
    start = 0
    while start < len(origins):
        end = start + 1
        step = int(origins[end] - origins[start]) if end < len(origins) else 1
        step = step if step in (-1, 0, 1) else 1
        while end < len(origins) and origins[end] - origins[end - 1] == step:
            end += 1
        first, last = int(origins[start]), int(origins[end - 1])
        if first >= 0 and last >= 0:
            found.append((slice(start, end), _span(first, last, step)))
        start = end
    return found


def _span(first: int, last: int, step: int) -> slice:
    if step == 0:
        return slice(first, first + 1)
    stop = last + step
    return slice(first, stop if stop >= 0 else None, step)


def _pads(rank: int, pads: Array, axes: Array | None) -> list[tuple[int, int]]:
    """`(before, after)` for every axis."""
    pads = np.ravel(pads).tolist()
    axes = list(range(rank)) if axes is None else [a % rank for a in np.ravel(axes).tolist()]
    every = [(0, 0)] * rank
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        every[axis] = (before, after)
    return every


def _stages(shape: Sequence[int], pads: Sequence[Sequence[int]]) -> list[Any]:
    """`(axis, shape after it)` for each axis with a border, in order."""
    shape = list(shape)
    found = []
    for axis, border in enumerate(pads):
        if border != (0, 0):
            shape[axis] += sum(border)
            found.append((axis, tuple(shape)))
    return found


def _visible(size: int, before: int, after: int) -> Index:
    """The places of a padded axis that show x itself, and the part of x they show."""
    first, last = max(0, -before), max(0, -before, size - max(0, -after))
    return slice(first + before, last + before), slice(first, last)


def _work(
    x: Spec,
    pads: Array,
    value: Array | None = None,
    axes: Array | None = None,
    *,
    mode: str = "constant",
) -> list[Spec]:
    """Intermediate arrays, padded along some axes but not all; known only where the pads are."""
    if mode == "constant":
        return []
    borders = _pads(len(x.shape), pads, axes)
    return [Spec(shape, x.dtype) for _, shape in _stages(x.shape, borders)[:-1]]


@kernel("Pad", host=(1, 2, 3), work=_work)
def pad(
    xp: Any, x: Array, pads: Array, value: Array | None = None, axes: Array | None = None, *,
    out: Arrays, work: Arrays, mode: str = "constant",
) -> None:  # fmt: skip
    """`x` with a border, of a constant or of its own elements; negative pads crop."""
    y = out[0]
    borders = _pads(x.ndim, pads, axes)
    if mode == "constant":
        y.fill(0 if value is None else value.item())
        visible = [_visible(n, *border) for n, border in zip(x.shape, borders, strict=True)]
        xp.copyto(y[tuple(p for p, _ in visible)], x[tuple(e for _, e in visible)])
        return
    stages = _stages(x.shape, borders)
    if not stages:
        xp.copyto(y, x)
    for (axis, _), target in zip(stages, [*work, y], strict=False):
        for places, elements in _runs(_origins(x.shape[axis], borders[axis], mode)):
            xp.copyto(target[along(axis, places)], x[along(axis, elements)])
        x = target


def _grad_work(
    dy: Spec, shape: Array, pads: Array, axes: Array | None = None, *, out: Specs, mode: str
) -> list[Spec]:
    borders = _pads(len(dy.shape), pads, axes)
    stages = _stages(out[0].shape, borders)
    partial = [Spec(s, dy.dtype) for _, s in stages[:-1]]
    lines = [
        math.prod((*s[:axis], *s[axis + 1 :]))
        for axis, s in stages
        if _repeats(out[0].shape[axis], borders[axis], mode)
    ]
    return [*partial, Spec((max(lines, default=0),), dy.dtype)]


def _repeats(size: int, border: tuple[int, int], mode: str) -> bool:
    """Whether a run of the border shows one element again and again."""
    before, after = border
    if size + before + after < 2:
        return False
    if mode == "edge":
        return max(before, after) > 0
    return (
        mode != "constant"
        and (size + min(0, before) + min(0, after) if mode == "wrap" else size) == 1
    )


@kernel("ai.gradtool::PadGrad", host=(1, 2, 3), work=_grad_work)
def pad_grad(
    xp: Any, dy: Array, shape: Array, pads: Array, axes: Array | None = None, *,
    out: Arrays, work: Arrays, mode: str,
) -> None:  # fmt: skip
    """Axis by axis, the last one first: each place of the border is added to its element."""
    dx = out[0]
    borders = _pads(dx.ndim, pads, axes)
    stages = _stages(dx.shape, borders)
    if not stages:
        xp.copyto(dx, dy)
    for index in reversed(range(len(stages))):
        axis, _ = stages[index]
        target = work[index - 1] if index else dx
        target.fill(0)
        for places, elements in _runs(_origins(dx.shape[axis], borders[axis], mode)):
            shown, part = target[along(axis, elements)], dy[along(axis, places)]
            if part.shape[axis] != shown.shape[axis]:
                line = work[-1][: shown.size].reshape(shown.shape)
                part = xp.sum(part, axis=axis, keepdims=True, out=line)
            xp.add(shown, part, out=shown)
        dy = target


@kernel("CenterCropPad", host=(1,), strided=True)
def center_crop_pad(
    xp: Any, x: Array, shape: Array, *, out: Arrays, axes: Sequence[int] | None = None
) -> None:
    """`x` cropped or padded with zeros on both sides, the odd element on the right."""
    y = out[0]
    y.fill(0)
    places, elements = [], []
    for have, want in zip(x.shape, y.shape, strict=True):
        common = min(have, want)
        elements.append(slice((have - common) // 2, (have - common) // 2 + common))
        places.append(slice((want - common) // 2, (want - common) // 2 + common))
    xp.copyto(y[tuple(places)], x[tuple(elements)])
