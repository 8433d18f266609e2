"""Resize and its gradient: along one axis after the other, those that shrink first.

Both are the same sum over taps, the gradient's being the transposed ones.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.program import Spec
from gradtool.resampling import taps

BLOCK = 32768  # elements of a temporary


def _wide(dtype):
    """The type to compute in: float32 for half precision and for integers."""
    return dtype if np.dtype(dtype).name in ("float32", "float64") else np.dtype(np.float32)


def _shapes(shape, plan):
    """The shape after each axis of `plan`."""
    shape = list(shape)
    for step in plan:
        shape[step.axis] = len(step.index)
        yield tuple(shape)


def _repeats(plan):
    """Whether the whole resize only repeats elements."""
    return all(step.repeats for step in plan)


def _workspace(shape, plan, dtype, *, nearest):
    """The stages between axes, the input and output as floats, and a temporary."""
    wide = dtype if nearest else _wide(dtype)
    stages = [shape, *_shapes(shape, plan)]
    inner = stages if wide != dtype else stages[1:-1]
    lines = [s[: p.axis] + s[p.axis + 1 :] for s, p in zip(stages[1:], plan, strict=True)]
    largest = max(map(math.prod, lines), default=0)
    return [*(Spec(s, wide) for s in inner), Spec((max(largest, BLOCK),), wide)]


def _run(xp, x, plan, y, work):
    """`y` = x through the taps of each axis in turn."""
    *stages, scratch = work
    if scratch.dtype != x.dtype:
        xp.copyto(stages[0], x)
        x, *stages = stages
    else:
        stages = [*stages, y]
    for step, target in zip(plan, stages, strict=True):
        _along(xp, step, x, target, scratch)
        x = target
    if x is not y:
        xp.copyto(y, x, casting="unsafe")


def _along(xp, step, x, y, scratch):
    before = math.prod(x.shape[: step.axis])
    x = x.reshape(before, x.shape[step.axis], -1)
    y = y.reshape(before, y.shape[step.axis], -1)
    if y.shape[2] == 1:
        _rows(xp, step, x[:, :, 0], y[:, :, 0], scratch)
        return
    line = scratch[: y[:, 0].size].reshape(y[:, 0].shape)
    copies, weights = step.copies, step.weights.astype(y.dtype)
    for j, index in enumerate(step.index):
        if copies:
            y[:, j] = x[:, index[0]]
            continue
        y[:, j] = 0 if step.fill is None else step.fill[j]
        for i, weight in zip(index.tolist(), weights[j].tolist(), strict=True):
            if weight:
                xp.multiply(x[:, i], weight, out=line)
                y[:, j] += line


def _rows(xp, step, x, y, scratch):
    """The last axis: rows a few at a time, so that they stay in the cache."""
    places = y.shape[1]
    index = xp.asarray(np.ascontiguousarray(step.index.T))
    weights = xp.asarray(np.ascontiguousarray(step.weights.T.astype(y.dtype)))
    fill = 0 if step.fill is None else xp.asarray(step.fill.astype(y.dtype))
    rows = max(1, BLOCK // max(places, 1))
    for start in range(0, len(y), rows):
        part, total = x[start : start + rows], y[start : start + rows]
        if step.copies:
            xp.take(part, index[0], axis=1, out=total, mode="clip")
            continue
        taken = scratch[: total.size].reshape(total.shape)
        total[...] = fill
        for i, weight in zip(index, weights, strict=True):
            xp.take(part, i, axis=1, out=taken, mode="clip")
            taken *= weight
            total += taken


def _resize_work(x, *inputs, out, **attributes):
    plan = taps(x.shape, out[0].shape, *inputs, **attributes)
    if _repeats(plan):
        return []
    return _workspace(
        x.shape, plan, x.dtype, nearest=attributes.get("mode", "nearest") == "nearest"
    )


@kernel("Resize", host=(1, 2, 3), work=_resize_work)
def resize(xp, x, *inputs, out, work, **attributes):
    """`x` at other sizes, by the nearest element or a polynomial through the neighbours."""
    plan = taps(x.shape, out[0].shape, *inputs, **attributes)
    if work:
        _run(xp, x, plan, out[0], work)
        return
    for window in _phases(out[0], plan):
        xp.copyto(window, x)


def _grad_plan(dx, dy, inputs, attributes):
    forward = taps(dx.shape, dy.shape, *inputs, **attributes)
    return forward, [step.transposed(dx.shape[step.axis]) for step in reversed(forward)]


def _grad_work(dy, shape, *inputs, out, **attributes):
    forward, plan = _grad_plan(out[0], dy, inputs, attributes)
    return [] if _repeats(forward) else _workspace(dy.shape, plan, dy.dtype, nearest=False)


@kernel("ai.gradtool::ResizeGrad", host=(1, 2, 3, 4), work=_grad_work)
def resize_grad(xp, dy, shape, *inputs, out, work, **attributes):
    """The transposed taps applied to `dy`."""
    dx = out[0]
    forward, plan = _grad_plan(dx, dy, inputs, attributes)
    if work:
        _run(xp, dy, plan, dx, work)
        return
    first, *rest = _phases(dy, forward)
    xp.copyto(dx, first)
    for window in rest:
        dx += window


def _phases(y, plan):
    """The windows on `y` that each show all of x, of a resize that only repeats."""
    factors = {step.axis: step.repeats for step in plan}
    each = [factors.get(axis, 1) for axis in range(y.ndim)]
    for offsets in itertools.product(*map(range, each)):
        yield y[tuple(slice(o, None, f) for o, f in zip(offsets, each, strict=True))]
