"""Pad, its gradient, and CenterCropPad.

A padded axis is cut into runs: pieces that copy neighbours, in order, backwards, or one again and
again.  There are few of them, so that no table of positions is needed.
"""

from __future__ import annotations

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels._windows import along
from gradtool.program import Spec


def _origins(size, before, after, mode):
    """Which element each place of the padded axis shows; -1 where a constant is."""
    places = np.arange(-before, size + after)
    if mode == "edge":
        return np.clip(places, 0, size - 1)
    if mode == "wrap":
        return places % size
    if mode == "reflect":
        turned = places % max(2 * (size - 1), 1)
        return np.minimum(turned, 2 * (size - 1) - turned)
    return np.where((places < 0) | (places >= size), -1, places)


def _runs(origins):
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


def _span(first, last, step):
    if step == 0:
        return slice(first, first + 1)
    stop = last + step
    return slice(first, stop if stop >= 0 else None, step)


def _pads(rank, pads, axes):
    """`(before, after)` for every axis."""
    pads = np.ravel(pads).tolist()
    axes = list(range(rank)) if axes is None else [a % rank for a in np.ravel(axes).tolist()]
    every = [(0, 0)] * rank
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        every[axis] = (before, after)
    return every


def _middle(size, before, after):
    """The places of a padded axis that show x itself, and the part of x they show."""
    first, last = max(0, -before), size - max(0, -after)
    last = max(first, last)
    return slice(first + before, last + before), slice(first, last)


def _pad(xp, x, pads, y, mode, fill):
    middles = [_middle(n, *p) for n, p in zip(x.shape, pads, strict=True)]
    if mode == "constant":
        y.fill(fill)
    elif not y.size:
        return
    xp.copyto(y[tuple(m for m, _ in middles)], x[tuple(m for _, m in middles)])
    if mode == "constant":
        return
    for axis, (before, after) in enumerate(pads):
        shift = max(before, 0) + min(before, 0)
        for places, elements in _runs(_origins(x.shape[axis], before, after, mode)):
            source = _moved(elements, shift)
            if places != middles[axis][0] and source is not None:
                xp.copyto(y[along(axis, places)], y[along(axis, source)])


def _moved(elements, shift):
    start, stop, step = elements.start + shift, elements.stop, elements.step
    return slice(start, None if stop is None and shift == 0 else (stop or 0 if stop is not None else -1) + shift, step)
