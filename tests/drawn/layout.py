"""Operators that move data: layouts, windows, joins, borders, repetition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from drawn.case import MOST_ELEMENTS, Case, Draw, draws

FAR = (2**31 - 1, 2**62, -(2**31), -(2**62))


@draws("Reshape")
def reshape(d: Draw) -> Case:
    shape = d.shape()
    given = d.maybe(allowzero=d.int(0, 1))
    size, wanted = math.prod(shape), []
    if size == 0:
        wanted = [0, *(d.size(1, 4) for _ in range(d.int(0, 3)))]
        wanted = [wanted[i] for i in d.rng.permutation(len(wanted))]
        given["allowzero"] = 1
        return d.case(d.x(shape), d.sizes(wanted), **given)
    while size > 1 and len(wanted) < 4:
        factor = d.one(*(f for f in range(1, size + 1) if size % f == 0))
        wanted.append(factor)
        size //= factor
    wanted.append(size)
    form = d.int(0, 3)
    if form == 1:
        wanted[d.int(0, len(wanted) - 1)] = -1
    elif form == 2 and not given.get("allowzero"):
        wanted = [0 if i < len(shape) and n == shape[i] else n for i, n in enumerate(wanted)]
        if 0 in wanted and d.flag():
            wanted = [*wanted[: wanted.index(0) + 1], -1]
            wanted = [0 if i < wanted.index(0) + 1 and 0 in wanted[i:] and False else n
                      for i, n in enumerate(wanted)]  # fmt: skip
            left = math.prod(shape[i] if n == 0 else n for i, n in enumerate(wanted[:-1]))
            if math.prod(shape) % left:
                wanted = [-1]
    return d.case(d.x(shape), d.sizes(wanted), **given)


@draws("Flatten")
def flatten(d: Draw) -> Case:
    shape = d.shape()
    given = d.maybe(axis=d.int(-len(shape), len(shape)))
    return d.case(d.x(shape), **(given if shape else {"axis": 0}))


@draws("Squeeze")
def squeeze(d: Draw) -> Case:
    """Without axes the rank depends on the sizes, which are known then."""
    shape = list(d.shape(0, 3))
    for _ in range(d.int(0, 2)):
        shape.insert(d.int(0, len(shape)), 1)
    axes = [a - len(shape) * d.int(0, 1) for a, n in enumerate(shape) if n == 1 and d.flag(0.7)]
    if axes:
        return d.case(d.x(shape), d.sizes(axes))
    return d.case(d.x(shape, closed=True))


@draws("Unsqueeze")
def unsqueeze(d: Draw) -> Case:
    shape = d.shape(0, 4)
    count = d.int(0, 2)
    rank = len(shape) + count
    axes = [int(a) - rank * d.int(0, 1) for a in d.rng.permutation(rank)[:count]]
    return d.case(d.x(shape), d.sizes(axes))


@draws("Transpose")
def transpose(d: Draw) -> Case:
    shape = d.shape()
    return d.case(d.x(shape), **d.maybe(perm=[int(a) for a in d.rng.permutation(len(shape))]))


@draws("Expand")
def expand(d: Draw) -> Case:
    whole = d.shape()
    x = d.broadcast(whole)
    wanted = [1 if d.flag(0.2) and (i >= len(whole) - len(x)) and x[i - len(whole)] == n else n
              for i, n in enumerate(whole)]  # fmt: skip
    wanted = wanted[d.int(0, len(whole) - len(x)) :] if d.flag(0.2) else wanted
    return d.case(d.x(x), d.sizes(wanted))


@draws("Concat")
def concat(d: Draw) -> Case:
    shape = list(d.shape(low=1))
    axis = d.axis(len(shape))
    parts = []
    for _ in range(d.int(1, 4)):
        shape[axis] = d.size(0, 3)
        parts.append(d.x(shape))
    return d.case(*parts, axis=axis)


@draws("Split")
def split(d: Draw) -> Case:
    shape = list(d.shape(low=1))
    axis = d.axis(len(shape))
    count = d.int(1, 4)
    given = d.maybe(axis=axis)
    axis = given.get("axis", 0)
    form = d.int(0, 2)
    if form == 0:
        sizes = [d.size(0, 3) for _ in range(count)]
        shape[axis] = sum(sizes)
        return d.case(d.x(shape), d.sizes(sizes), outputs=count, **given)
    if form == 1:
        shape[axis] = count * d.int(1, 3)
    else:
        shape[axis] = max(count, shape[axis]) + d.int(0, 2)
    while -(-shape[axis] // count) * (count - 1) > shape[axis]:
        shape[axis] += 1
    return d.case(d.x(shape), outputs=count, num_outputs=count, **given)


@draws("Slice")
def slice_(d: Draw) -> Case:
    """Bounds anywhere: within, before and behind the axis, and as far as numbers go."""
    shape = d.shape(low=1)
    every = d.flag(0.2)
    axes = list(range(d.int(1, len(shape)))) if every else d.axes(len(shape), least=1)
    starts, ends, steps = [], [], []
    for axis in axes:
        n = shape[axis]
        steps.append(d.one(1, 1, 1, 2, 3, -1, -1, -2, 7, -9))
        near = [d.int(-n - 3, n + 3) for _ in range(3)]
        starts.append(d.one(*near, 0, -1, *(FAR if d.flag(0.2) else near)))
        ends.append(d.one(*near, n, -n - 1, *(FAR if d.flag(0.4) else near)))
    kind = d.one(np.int64, np.int64, np.int32)
    bounds = [
        np.clip(v, np.iinfo(kind).min, np.iinfo(kind).max).astype(kind) for v in (starts, ends)
    ]
    plain = set(steps) == {1} and d.flag()
    last = None if plain else d.constant(np.asarray(steps, kind))
    axes_ = None if every else d.constant(np.asarray(axes, kind))
    starts_, ends_ = (d.fixed(b, closed=not every) for b in bounds)
    return d.case(d.x(shape), starts_, ends_, axes_, last)


@draws("Pad")
def pad(d: Draw) -> Case:
    mode = d.one("constant", "constant", "reflect", "edge", "wrap")
    shape = d.shape(low=1, least=0 if mode == "constant" else 1)
    some = d.flag()
    axes = d.axes(len(shape), least=1) if some else list(range(len(shape)))
    low = -1 if d.flag(0.3) else 0
    before, after = [], []
    for axis in axes:
        n = shape[axis]
        most = {"reflect": n - 1, "wrap": n, "edge": 3, "constant": 3}[mode]
        first, last = d.int(min(low, 0), max(most, 0)), d.int(min(low, 0), max(most, 0))
        if n + min(first, 0) + min(last, 0) < (mode != "constant"):
            first, last = 0, 0
        before.append(first)
        after.append(last)
    kind = np.int64  # onnx's own inference takes no int32 here
    value = d.x(()) if mode == "constant" and d.flag() else None
    chosen = d.constant(np.asarray(axes, kind)) if some else None
    given = {"mode": mode} if mode != "constant" or d.flag() else {}
    opset: Any = (19, 21, 23) if mode == "wrap" else (18, 19, 21)
    return d.case(d.x(shape), d.sizes(before + after), value, chosen, opset=opset, **given)


@draws("Tile")
def tile(d: Draw) -> Case:
    shape = d.shape()
    repeats = [d.size(0, 3) for _ in shape]
    while math.prod(repeats) * math.prod(shape) > 4 * MOST_ELEMENTS:
        repeats[int(np.argmax(repeats))] = 1
    return d.case(d.x(shape), d.fixed(np.asarray(repeats, np.int64), closed=True))


@draws("Trilu")
def trilu(d: Draw) -> Case:
    shape = d.shape(low=2)
    k = d.fixed(np.asarray(d.int(-6, 6))) if d.flag() else None
    return d.case(d.x(shape), k, **d.maybe(upper=d.int(0, 1)))


@draws("CenterCropPad")
def center_crop_pad(d: Draw) -> Case:
    shape = d.shape(low=1)
    axes = d.axes(len(shape), least=1)
    some = d.flag()
    wanted = [d.size(0, 6) for _ in (axes if some else shape)]
    return d.case(d.x(shape), d.sizes(wanted), **({"axes": axes} if some else {}))


@draws("DepthToSpace", "SpaceToDepth")
def blocks(d: Draw) -> Case:
    b = d.int(1, 3)
    n, c, h, w = d.size(0, 2), d.int(1, 2), d.size(0, 3), d.size(0, 2)
    if d.op == "DepthToSpace":
        given = d.maybe(mode=d.one("DCR", "CRD"))
        return d.case(d.x((n, c * b * b, h, w)), blocksize=b, **given)
    return d.case(d.x((n, c, h * b, w * b)), blocksize=b)


@draws("ReverseSequence")
def reverse_sequence(d: Draw) -> Case:
    shape = d.shape(low=2, least=1)
    given = d.maybe(batch_axis=0, time_axis=1) if d.flag() else {}
    time = given.get("time_axis", 0)
    batch = given.get("batch_axis", 1)
    if time == batch:
        given, time, batch = {"batch_axis": 1, "time_axis": 0}, 0, 1
    lens = d.rng.integers(0 if d.flag(0.1) else 1, shape[time] + 1, shape[batch])
    return d.case(d.x(shape), d.fixed(lens.astype(np.int64)), **given)


@draws("Range")
def range_(d: Draw) -> Case:
    """The limit is far from a step, so that the count stays."""
    start, delta, count = d.int(-3, 3) / 2, d.one(0.5, 1.0, -0.75), d.int(0, 5)
    limit = start + delta * (count - 0.5)
    given = d.x(())
    made = [type(given)(np.asarray(v), moved=True, constant=False) for v in (start, delta)]
    return d.case(made[0], d.constant(np.asarray(limit)), made[1], dtypes=("float32", "float64"))


@draws("Col2Im")
def col2im(d: Draw) -> Case:
    rank = d.int(1, 3)
    block = [d.int(1, 2 if rank == 3 else 3) for _ in range(rank)]
    given = d.maybe(
        strides=d.ints(rank, 1, 3), dilations=d.ints(rank, 1, 2), pads=d.ints(2 * rank, 0, 1)
    )
    strides, pads = given.get("strides", [1] * rank), given.get("pads", [0] * 2 * rank)
    dilations = given.get("dilations", [1] * rank)
    counts = [d.int(1, 3 if rank < 3 else 2) for _ in range(rank)]
    image = []
    for a in range(rank):
        reach = (
            dilations[a] * (block[a] - 1)
            + 1
            + (counts[a] - 1) * strides[a]
            + d.int(0, strides[a] - 1)
        )
        image.append(max(1, reach - pads[a] - pads[rank + a]))
        room = image[a] + pads[a] + pads[rank + a] - dilations[a] * (block[a] - 1) - 1
        counts[a] = room // strides[a] + 1
    shape = (d.size(0, 2), d.int(1, 2) * math.prod(block), math.prod(counts))
    return d.case(d.x(shape), d.sizes(image), d.sizes(block), **given)
