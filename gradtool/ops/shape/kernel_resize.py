"""Resize and its gradient: along one axis after the other, shrinking ones first.

A few planes go through all axes while they stay in the cache.  Both directions are the same sum
over taps, the gradient's being the transposed ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.operators.resampling import Taps, taps
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.select import take
from gradtool.ops.shared.types import Array, Arrays, DType, Specs

BLOCK = 32768  # elements of the planes that are resized at a time


def _wide(dtype: DType) -> DType:
    """The type to compute in: float32 for half precision and for integers."""
    return dtype if np.dtype(dtype).name in ("float32", "float64") else np.dtype(np.float32)


def _repeats(plan: Sequence[Taps]) -> bool:
    """Whether the whole resize only repeats elements."""
    return all(step.repeats for step in plan)


def _planes(shape: Sequence[int], plan: Sequence[Taps]) -> tuple[int, Any]:
    """Axes before the first that changes, and the shapes of one plane after each step."""
    lead = min((step.axis for step in plan), default=0)
    plane = list(shape[lead:])
    shapes = [tuple(plane)]
    for step in plan:
        plane[step.axis - lead] = len(step.index)
        shapes.append(tuple(plane))
    return lead, shapes


def _at_once(shape: Sequence[int], plan: Sequence[Taps]) -> int:
    """Number of planes resized at a time."""
    lead, shapes = _planes(shape, plan)
    return min(max(1, at_a_time(BLOCK) // max(1, *map(math.prod, shapes))), math.prod(shape[:lead]))


def _workspace(
    shape: Sequence[int], plan: Sequence[Taps], dtype: DType, *, nearest: bool, every: bool = False
) -> list[Spec]:
    """For a few planes: results between the steps, both ends as floats, and the next tap.

    The steps of `every` axis may have more taps than those at hand.
    """
    wide = dtype if nearest else _wide(dtype)
    _, shapes = _planes(shape, plan)
    planes = _at_once(shape, plan)
    inner = shapes if wide != dtype else shapes[1:-1]
    added = [every or _taps(step) > 1 for step in plan]
    sums = [math.prod(s) for s, adds in zip(shapes[1:], added, strict=True) if adds]
    scratch = Spec((planes * max(sums, default=0),), wide)
    return [*(Spec((planes, *s), wide) for s in inner), scratch]


def _taps(step: Taps) -> int:
    return int(step.index.shape[1])


def _run(xp: Any, x: Array, plan: Sequence[Taps], y: Array, work: Arrays) -> None:
    """`y` = x through the taps of each axis in turn, a few planes at a time."""
    if not x.size or not y.size:
        y[...] = 0
        return
    *stages, scratch = work
    lead, shapes = _planes(x.shape, plan)
    planes = _at_once(x.shape, plan)
    x, y = x.reshape(-1, *shapes[0]), y.reshape(-1, *shapes[-1])
    for start in range(0, len(x), planes):
        given, wanted = x[start : start + planes], y[start : start + planes]
        chain = [stage[: len(given)] for stage in stages]
        if scratch.dtype == x.dtype:
            chain = [given, *chain, wanted]
        else:
            xp.copyto(chain[0], given)
        for step, (source, result) in zip(plan, itertools.pairwise(chain), strict=True):
            _along(xp, step, source, result, step.axis - lead + 1, scratch)
        if chain[-1] is not wanted:
            xp.copyto(wanted, chain[-1], casting="unsafe")


def _along(xp: Any, step: Taps, x: Array, y: Array, axis: int, scratch: Array) -> None:
    """`y` = the sum of x at each tap, times its weight."""
    before = math.prod(x.shape[:axis])
    x = x.reshape(before, x.shape[axis], -1)
    y = y.reshape(before, y.shape[axis], -1)
    taken = scratch[: y.size].reshape(y.shape) if _taps(step) > 1 else None
    for tap, index in enumerate(xp.asarray(np.ascontiguousarray(step.index.T))):
        target = taken if tap else y
        take(xp, x, index, axis=1, out=target)
        if not step.copies:
            target *= xp.asarray(step.weights[:, tap, None].astype(y.dtype))
        if tap:
            y += taken
    if step.fill is not None:
        y += xp.asarray(step.fill[:, None].astype(y.dtype))


def _is_open(inputs: Sequence[Array | None]) -> bool:
    """Whether scales, sizes or a region are known to a run only, and not to its plan."""
    return any(i is not None and not isinstance(i, np.ndarray) for i in inputs)


def _is_nearest(attributes: Mapping[str, Any]) -> bool:
    return bool(attributes.get("mode", "nearest") == "nearest")


def _planned(
    x: Spec, inputs: Sequence[Array | None], plan_of: Callable[..., list[Taps]], *, nearest: bool
) -> list[Spec]:
    """The workspace of the plan; of every axis where the plan cannot say which ones change."""
    every = _is_open(inputs)
    return _workspace(x.shape, plan_of(every=every), x.dtype, nearest=nearest, every=every)


def _fitting(
    x: Array, work: Arrays, plan_of: Callable[..., list[Taps]], *, nearest: bool
) -> list[Taps]:
    """The plan that `work` is for."""
    plan = plan_of()
    fits = plan and len(work) == len(_workspace(x.shape, plan, x.dtype, nearest=nearest))
    return plan if fits else plan_of(every=True)


def _resize_work(x: Spec, *inputs: Array, out: Specs, **attributes: Any) -> list[Spec]:
    plan_of = partial(taps, x.shape, out[0].shape, *inputs, **attributes)
    if not _is_open(inputs) and _repeats(plan_of()):
        return []
    return _planned(x, inputs, plan_of, nearest=_is_nearest(attributes))


@kernel("Resize", host=(1, 2, 3), work=_resize_work)
def resize(xp: Any, x: Array, *inputs: Array, out: Arrays, work: Arrays, **attributes: Any) -> None:
    """`x` at other sizes, by the nearest element or a polynomial through the neighbours."""
    plan_of = partial(taps, x.shape, out[0].shape, *inputs, **attributes)
    if work:
        _run(xp, x, _fitting(x, work, plan_of, nearest=_is_nearest(attributes)), out[0], work)
        return
    for part, phases in _phases(x, out[0], plan_of()):
        for window in phases:
            xp.copyto(window, part)


def _transposed(*given: Array, **attributes: Any) -> list[Taps]:
    return [step.transposed() for step in reversed(taps(*given, **attributes))]


def _grad_work(dy: Spec, shape: Array, *inputs: Array, out: Specs, **attributes: Any) -> list[Spec]:
    given = out[0].shape, dy.shape, *inputs
    if not _is_open(inputs) and _repeats(taps(*given, **attributes)):
        return []
    return _planned(dy, inputs, partial(_transposed, *given, **attributes), nearest=False)


@kernel("ai.gradtool::ResizeGrad", host=(1, 2, 3, 4), work=_grad_work)
def resize_grad(
    xp: Any, dy: Array, shape: Array, *inputs: Array, out: Arrays, work: Arrays, **attributes: Any
) -> None:
    """The transposed taps applied to `dy`."""
    given = out[0].shape, dy.shape, *inputs
    if work:
        plan_of = partial(_transposed, *given, **attributes)
        _run(xp, dy, _fitting(dy, work, plan_of, nearest=False), out[0], work)
        return
    for part, (first, *rest) in _phases(out[0], dy, taps(*given, **attributes)):
        xp.copyto(part, first)
        for window in rest:
            xp.add(part, window, out=part)


def _phases(x: Array, y: Array, plan: Sequence[Taps]) -> Iterator[tuple[Array, list[Array]]]:
    """`(part of x, the windows on y that each show all of it)` of a resize by repetition."""
    if not x.size:
        return
    lead, shapes = _planes(x.shape, plan)
    factors = {step.axis - lead: step.repeats for step in plan}
    each = [factors.get(axis, 1) for axis in range(len(shapes[0]))]
    x, y = x.reshape(-1, *shapes[0]), y.reshape(-1, *shapes[-1])
    planes = max(1, at_a_time(BLOCK) // max(1, math.prod(shapes[-1])))
    for start in range(0, len(x), planes):
        part = slice(start, start + planes)
        yield (
            x[part],
            [
                y[(part, *(slice(o, None, f) for o, f in zip(offsets, each, strict=True)))]
                for offsets in itertools.product(*map(range, each))
            ],
        )
