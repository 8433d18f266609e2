"""Convolution and pooling."""

from __future__ import annotations

import math
from typing import Any

from drawn.case import MOST_ELEMENTS, Case, Draw, draws


def _window(d: Draw, rank: int, *, pooled: bool) -> tuple[list[int], list[int], dict[str, Any]]:
    """A kernel, an image, and the attributes: strides may exceed kernels, images be too small."""
    most = {1: 4, 2: 3}.get(rank, 2)
    kernel = d.ints(rank, 1, most)
    given: dict[str, Any] = d.maybe(strides=d.ints(rank, 1, 4), dilations=d.ints(rank, 1, 3))
    if d.flag(0.3):
        given["auto_pad"] = d.one("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    dilations = given.get("dilations", [1] * rank)
    reach = [(k - 1) * s + 1 for k, s in zip(kernel, dilations, strict=True)]
    if d.flag() and given.get("auto_pad", "NOTSET") == "NOTSET":
        limits = [k - 1 for k in kernel] if pooled else [2] * rank
        given["pads"] = [d.int(0, max(0, n)) for n in limits * 2]
    pads = given.get("pads", [0] * 2 * rank)
    least = [max(1, e - a - b) for e, a, b in zip(reach, pads[:rank], pads[rank:], strict=True)]
    image = [n + d.int(0, 4 if rank < 3 else 1) for n in least]
    if d.flag(0.04):  # a step too small for a window
        axis, strides = d.int(0, rank - 1), given.get("strides", [1] * rank)
        short = reach[axis] - pads[axis] - pads[rank + axis] - strides[axis]
        image[axis] = short if short >= 0 else image[axis]
    return kernel, image, given


@draws("Conv")
def conv(d: Draw) -> Case:
    rank = d.one(1, 2, 2, 3)
    kernel, image, given = _window(d, rank, pooled=False)
    group = d.one(1, 1, 2, 3)
    per, out = d.int(1, 2), d.int(1, 2) * group
    if group > 1 or d.flag():
        given["group"] = group
    if d.flag():
        given["kernel_shape"] = kernel
    x = d.x((d.size(0, 3), per * group, *image))
    w = d.w((out, per, *kernel))
    return d.case(x, w, d.w((out,)) if d.flag() else None, rough=4.0, **given)


@draws("ConvTranspose")
def conv_transpose(d: Draw) -> Case:
    rank = d.one(1, 2, 2, 3)
    kernel, _, given = _window(d, rank, pooled=False)
    image = d.ints(rank, 1, 3)
    group = d.one(1, 1, 2)
    given.pop("pads", None)
    strides, dilations = given.get("strides", [1] * rank), given.get("dilations", [1] * rank)
    whole = [
        (n - 1) * s + (k - 1) * g + 1
        for n, s, k, g in zip(image, strides, kernel, dilations, strict=True)
    ]
    if d.flag(0.3):
        given["output_padding"] = [
            d.int(0, max(s, g) - 1) for s, g in zip(strides, dilations, strict=True)
        ]
        whole = [n + p for n, p in zip(whole, given["output_padding"], strict=True)]
    if d.flag(0.2) and given.get("auto_pad") != "VALID":
        given["output_shape"] = [d.int(max(1, n - 2), n) for n in whole]
    elif d.flag() and given.get("auto_pad", "NOTSET") == "NOTSET":
        given["pads"] = [d.int(0, min(1, (n - 1) // 2)) for n in whole * 2]
    if group > 1:
        given["group"] = group
    if d.flag():
        given["kernel_shape"] = kernel
    x = d.x((d.size(0, 2), d.int(1, 2) * group, *image))
    w = d.w((x.array.shape[1], d.int(1, 2), *kernel))
    bias = d.w((w.array.shape[1] * group,)) if d.flag() else None
    return d.case(x, w, bias, rough=4.0, **given)


@draws("MaxPool", "AveragePool", "LpPool")
def pool(d: Draw) -> Case:
    rank = d.one(1, 2, 2, 3)
    kernel, image, given = _window(d, rank, pooled=True)
    given["kernel_shape"] = kernel
    given |= d.maybe(ceil_mode=d.int(0, 1))
    outputs = 1
    if d.op == "MaxPool":
        outputs = d.int(1, 2)
        given |= d.maybe(storage_order=d.int(0, 1)) if outputs == 2 else {}
    elif d.op == "AveragePool":
        given |= d.maybe(count_include_pad=d.int(0, 1))
    else:
        given |= d.maybe(p=d.int(1, 4))
    opset: Any = (19, 22) if d.op == "AveragePool" else (18, 22)
    if d.op == "AveragePool" and "dilations" not in given:
        opset = (18, 19, 22)
    planes = d.size(0, 2), d.size(0, 2)
    while math.prod(planes) * math.prod(image) > 2 * MOST_ELEMENTS:
        image[image.index(max(image))] -= 1
    x = d.x((*planes, *image), apart=d.op == "MaxPool")
    return d.case(x, outputs=outputs, opset=opset, **given)


@draws("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(d: Draw) -> Case:
    rank = d.int(1, 3)
    x = d.x((d.size(0, 3), d.size(0, 3), *(d.size(1, 4) for _ in range(rank))), apart=True)
    given = d.maybe(p=d.int(1, 4)) if d.op == "GlobalLpPool" else {}
    return d.case(x, **given)


@draws("MaxUnpool")
def max_unpool(d: Draw) -> Case:
    rank = d.int(1, 3)
    kernel, image = d.ints(rank, 1, 3), d.ints(rank, 1, 3)
    given = d.maybe(strides=d.ints(rank, 1, 3))
    if d.flag(0.3):
        given["pads"] = [d.int(0, (k - 1) // 2) for k in kernel * 2]
    strides, pads = given.get("strides", [1] * rank), given.get("pads", [0] * 2 * rank)
    sizes = [
        (n - 1) * s + k - a - b
        for n, s, k, a, b in zip(image, strides, kernel, pads[:rank], pads[rank:], strict=True)
    ]
    lead, larger = (d.int(1, 2), d.int(1, 2)), d.flag(0.3)
    if min(sizes) < 1 or math.prod(sizes) < math.prod(image):
        given, sizes = {}, [n + k - 1 for n, k in zip(image, kernel, strict=True)]
    x = d.x((*lead, *image))
    sizes = [n + d.int(0, 1) for n in sizes] if larger else sizes
    whole = math.prod(lead) * math.prod(sizes)
    places = d.rng.permutation(whole)[: x.array.size].reshape(x.array.shape)
    given["kernel_shape"] = kernel
    shape = d.sizes([*lead, *sizes]) if larger else None
    return d.case(x, d.fixed(places), shape, **given)
