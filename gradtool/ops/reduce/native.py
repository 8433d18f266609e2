"""Sums and means over axes, of images in either layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import reduce as library
from gradtool.native import strided
from gradtool.ops.native import Bound, are_floats, in_turn, native, room
from gradtool.ops.shared.image_layouts import Laid, is_last, lying
from gradtool.ops.shared.sums import reduced_axes
from gradtool.ops.shared.types import Array, Arrays, Specs

LAST = (0, 2, 3, 1)  # axes of an image as it lies channels last


def _fits(x: Spec, axes: Any = None, *, out: Specs, **given: Any) -> bool:
    known = axes is None or isinstance(axes, np.ndarray)
    if not known or not are_floats(x, *out) or 0 in x.shape:
        return False
    return any(x.shape[axis] > 1 for axis in _axes(x, axes, given))


def _axes(x: Spec | Array, axes: Array | None, given: dict[str, Any]) -> tuple[int, ...]:
    return reduced_axes(len(x.shape), axes, given.get("noop_with_empty_axes", 0))


def _lying(shape: Sequence[int], axes: Sequence[int], *, last: bool) -> tuple[Any, list[int]]:
    """The shape of x as it lies, and the axes there."""
    if not last:
        return shape, [axis for axis in range(len(shape)) if axis in axes]
    return [shape[a] for a in LAST], [LAST.index(axis) for axis in sorted(axes)]


def _is_copied(x: Spec | Array, axes: Sequence[int], *, last: bool, wanted_last: bool) -> bool:
    """Whether the sum of an image lies otherwise than its result is to lie."""
    left = [1 if axis in axes else n for axis, n in enumerate(x.shape)]
    is_last = last and left[1] > 1 and left[2] * left[3] > 1
    return is_last != wanted_last


def _work(x: Spec, axes: Array | None = None, *, out: Specs, **given: Any) -> list[Spec]:
    chosen, last = _axes(x, axes, given), isinstance(x, Laid)
    copied = _is_copied(x, chosen, last=last, wanted_last=isinstance(out[0], Laid))
    sums = list(library.passes(*_lying(x.shape, chosen, last=last)))
    kept = [4 * before * after for before, _, after in sums[: None if copied else -1]]
    return room(sum(kept) + sum(map(library.work, sums)))


def _bind(
    x: Array, axes: Array | None = None, *, out: Arrays, work: Arrays, mean: bool = False,
    **given: Any,
) -> Bound:  # fmt: skip
    chosen, last, y = _axes(x, axes, given), is_last(x), out[0]
    copied = _is_copied(x, chosen, last=last, wanted_last=is_last(y))
    factor = 1 / math.prod(x.shape[axis] for axis in chosen) if mean else 1.0
    sums = list(library.passes(*_lying(x.shape, chosen, last=last)))
    calls: list[Bound] = []
    source, spare = lying(x), work[0] if work else np.empty(0, np.float32)
    for i, sizes in enumerate(sums):
        is_whole = i == len(sums) - 1
        target = y
        if copied or not is_whole:
            count = sizes[0] * sizes[2]
            target, spare = spare[:count], spare[count:]
        share = factor if is_whole else 1.0
        calls.append(library.reduce_sum(source, target, spare, sizes, factor=share))
        source, spare = target, spare[library.work(sizes) // 4 :]
    if copied:
        shape = [1 if axis in chosen else n for axis, n in enumerate(x.shape)]
        if last:
            source = source.reshape([shape[a] for a in LAST]).transpose(np.argsort(LAST))
        calls.append(strided.copy(source.reshape(shape), y.reshape(shape)))
    return in_turn(*calls)


native("ReduceSum", fits=_fits, work=_work, layouts="any")(_bind)
native("ReduceMean", fits=_fits, work=_work, layouts="any")(partial(_bind, mean=True))


def _fits_pool(x: Spec, *, out: Specs) -> bool:
    return _fits(x, np.arange(2, len(x.shape)), out=out)


def _pool_work(x: Spec, *, out: Specs) -> list[Spec]:
    return _work(x, np.arange(2, len(x.shape)), out=out)


@native("GlobalAveragePool", fits=_fits_pool, work=_pool_work, layouts="any")
def global_average_pool(x: Array, *, out: Arrays, work: Arrays) -> Bound:
    """The mean of each plane."""
    return _bind(x, np.arange(2, x.ndim), out=out, work=work, mean=True)
