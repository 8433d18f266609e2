"""Operators that look up, scatter and select."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from drawn.case import Array, Case, Draw, Given, draws


@draws("Gather")
def gather(d: Draw) -> Case:
    shape = d.shape(low=1)
    axis = d.axis(len(shape))
    given = d.maybe(axis=axis)
    n = shape[given.get("axis", 0)]
    where = d.shape(0, 3) if n else (0,)
    while math.prod(where) > 12:
        where = where[1:]
    return d.case(d.x(shape), d.indices(d.rng.integers(-n, max(n, 1), where)), **given)


@draws("GatherElements")
def gather_elements(d: Draw) -> Case:
    shape = d.shape(low=1, least=1)
    given = d.maybe(axis=d.axis(len(shape)))
    axis = given.get("axis", 0) % len(shape)
    where = [d.int(1, n) for n in shape]
    where[axis] = d.size(0, 5)
    n = shape[axis]
    return d.case(d.x(shape), d.indices(d.rng.integers(-n, n, where)), **given)


@draws("GatherND")
def gather_nd(d: Draw) -> Case:
    shape = d.shape(low=1, least=1)
    batch = d.int(0, min(2, len(shape) - 1))
    given = {"batch_dims": batch} if batch or d.flag() else {}
    deep = d.int(1, len(shape) - batch)
    lead = [*shape[:batch], *(d.size(0, 3) for _ in range(d.int(0, 2)))]
    return d.case(
        d.x(shape), d.fixed(_tuples(d, lead, shape[batch : batch + deep]), closed=True), **given
    )  # fmt: skip


def _tuples(d: Draw, lead: list[int], sizes: Any) -> Array:
    parts = [d.rng.integers(-n, n, lead) for n in sizes]
    return np.stack(parts, -1).astype(np.int64)


@draws("ScatterElements")
def scatter_elements(d: Draw) -> Case:
    shape = d.shape(low=1, least=1)
    given: dict[str, Any] = d.maybe(
        axis=d.axis(len(shape)), reduction=d.one("none", "add", "mul", "max", "min")
    )
    axis = given.get("axis", 0) % len(shape)
    where = [d.int(1, n) for n in shape]
    n = shape[axis]
    if given.get("reduction", "none") == "none":  # the result of duplicates is undefined
        where[axis] = d.int(1, n)
        indices = np.stack(
            [d.rng.permutation(n)[: where[axis]] for _ in range(math.prod(where) // where[axis])],
            -1,
        ).reshape(where[axis], *where[:axis], *where[axis + 1 :])
        indices = np.moveaxis(indices, 0, axis)
        indices = np.where(d.rng.random(where) < 0.3, indices - n, indices)
    else:
        where[axis] = d.size(0, 5)
        indices = d.rng.integers(-n, n, where)
    x, updates = _apart(d, shape, tuple(where))
    return d.case(x, d.indices(indices), updates, **given)


def _apart(d: Draw, *shapes: tuple[int, ...]) -> list[Given]:
    """Inputs no two elements of which are equal, and none nearly zero."""
    whole = d.numbers((sum(math.prod(s) for s in shapes),), 0.3, 2.3, apart=True)
    whole = whole * d.rng.choice([-1.0, 1.0], whole.shape)
    made, first = [], 0
    for shape in shapes:
        part = whole[first : first + math.prod(shape)].reshape(shape)
        first += math.prod(shape)
        made.append(Given(part, moved=True))
    return made


@draws("ScatterND")
def scatter_nd(d: Draw) -> Case:
    shape = d.shape(low=1, least=1)
    deep = d.int(1, len(shape))
    given = d.maybe(reduction=d.one("none", "add", "mul", "max", "min"))
    sizes = shape[:deep]
    every = np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), -1)
    if given.get("reduction", "none") == "none":
        indices = d.rng.permutation(every)[: d.int(0, min(4, len(every)))]
    else:
        indices = every[d.rng.integers(0, len(every), d.size(0, 4))]
    negative = d.rng.random(indices.shape) < 0.3
    indices = np.where(negative, indices - np.asarray(sizes), indices).astype(np.int64)
    if len(indices) % 2 == 0 and len(indices) and d.flag():
        indices = indices.reshape(2, -1, deep)
    x, updates = _apart(d, shape, (*indices.shape[:-1], *shape[deep:]))
    return d.case(x, d.fixed(indices, closed=True), updates, **given)


@draws("TensorScatter")
def tensor_scatter(d: Draw) -> Case:
    shape = list(d.shape(low=3, high=4, least=1))
    given = d.maybe(axis=-2, mode=d.one("linear", "circular"))
    axis = len(shape) - 2
    part = list(shape)
    part[axis] = d.int(1, shape[axis])
    most = shape[axis] - 1 if given.get("mode") == "circular" else shape[axis] - part[axis]
    where = d.rng.integers(0, most + 1, shape[0]).astype(np.int64)
    start = d.fixed(where) if d.flag(0.7) else None
    return d.case(d.x(shape), d.x(part), start, opset=24, **given)


@draws("TopK")
def topk(d: Draw) -> Case:
    shape = d.shape(low=1, least=1)
    given = d.maybe(axis=d.axis(len(shape)), largest=d.int(0, 1), sorted=1)
    n = shape[given.get("axis", -1)]
    return d.case(d.x(shape, apart=True), d.sizes([d.int(1, n)]), outputs=2, **given)


@draws("OneHot")
def one_hot(d: Draw) -> Case:
    depth = d.int(1, 4)
    shape = d.shape(0, 3)
    indices = d.rng.integers(-depth - 1, depth + 2, shape)
    depth_ = np.asarray([depth] if d.flag() else depth, d.one(np.int64, np.int64))
    given = d.maybe(axis=d.int(-len(shape) - 1, len(shape)))
    return d.case(d.fixed(indices.astype(np.int64)), d.constant(depth_), d.x((2,)), **given)


@draws("Compress")
def compress(d: Draw) -> Case:
    shape = d.shape(low=1, least=1)
    given = d.maybe(axis=d.axis(len(shape)))
    n = shape[given["axis"]] if given else math.prod(shape)
    kept = d.rng.random(d.int(0, n)) > 0.4
    return d.case(d.x(shape), d.fixed(kept), **given)


@draws("Unique")
def unique(d: Draw) -> Case:
    shape = d.shape(low=1, high=3, least=1)
    given = d.maybe(axis=d.axis(len(shape)), sorted=d.int(0, 1))
    return d.case(d.x(shape, apart=True), outputs=d.int(1, 4), **given)
