"""Steps of optimizers, of ai.onnx.preview.training: one block of elements at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays

BLOCK = 16384


def _two_blocks(
    rate: Array, count: Array, *tensors: Spec, out: Sequence[Spec | None], **attributes: Any
) -> list[Spec]:
    size = min(at_a_time(BLOCK), max((math.prod(t.shape) for t in tensors), default=0))
    return [Spec((size,), tensors[0].dtype)] * 2 if tensors else []


def _three_blocks(
    rate: Array, count: Array, *tensors: Spec, out: Sequence[Spec | None]
) -> list[Spec]:
    specs = _two_blocks(rate, count, *tensors, out=out)
    return [*specs, *specs[:1]]


def _blocks(
    groups: Sequence[Arrays], out: Sequence[Array | None], work: Arrays
) -> Iterator[tuple[Arrays, Arrays, Arrays]]:
    """Flat blocks `(inputs, outputs, work)` of each tensor of the groups."""
    count = len(groups[0])
    for index in range(count):
        inputs = [group[index].reshape(-1) for group in groups]
        made = [None if o is None else o.reshape(-1) for o in out[index::count]]
        block = at_a_time(BLOCK)
        for start in range(0, inputs[0].size, block):
            part = slice(start, start + block)
            room = [w[: inputs[0][part].size] for w in work]
            yield [a[part] for a in inputs], [None if m is None else m[part] for m in made], room


def _grouped(tensors: Arrays, kinds: int) -> list[Arrays]:
    count = len(tensors) // kinds
    return [tensors[k * count : (k + 1) * count] for k in range(kinds)]


def _regularised(xp: Any, x: Array, g: Array, factor: float, room: Array) -> Array:
    """`g + factor · x`."""
    xp.multiply(x, x.dtype.type(factor), out=room)
    xp.add(room, g, out=room)
    return room


def _number(array: Array, kind: Any = float) -> Any:
    return kind(np.asarray(array).reshape(-1)[0])


@kernel("ai.onnx.preview.training::Adagrad", host=(0, 1), work=_two_blocks)
def adagrad(
    xp: Any, rate: Array, count: Array, *tensors: Array, out: Arrays, work: Arrays,
    decay_factor: float = 0.0, epsilon: float = 1e-6, norm_coefficient: float = 0.0,
) -> None:  # fmt: skip
    """`x - r · g / (√h + ε)` and `h + g²`, with `r = R / (1 + T · decay)`."""
    r = _number(rate) / (1 + _number(count, int) * decay_factor)
    for (x, g, h), (new_x, new_h), (a, b) in _blocks(_grouped(tensors, 3), out, work):
        one = x.dtype.type
        g = _regularised(xp, x, g, norm_coefficient, a)  # noqa: PLW2901
        xp.multiply(g, g, out=b)
        xp.add(h, b, out=b)
        if new_h is not None:
            xp.copyto(new_h, b)
        xp.sqrt(b, out=b)
        xp.add(b, one(epsilon), out=b)
        xp.divide(g, b, out=b)
        xp.multiply(b, one(r), out=b)
        if new_x is not None:
            xp.subtract(x, b, out=new_x)


@kernel("ai.onnx.preview.training::Adam", host=(0, 1), work=_two_blocks)
def adam(
    xp: Any, rate: Array, count: Array, *tensors: Array, out: Arrays, work: Arrays,
    alpha: float = 0.9, beta: float = 0.999, epsilon: float = 1e-6, norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> None:  # fmt: skip
    """`x - r · v / (√h + ε)`, with running means v of the gradient and h of its square."""
    r, t = _number(rate), _number(count, int)
    if t > 0:
        r *= math.sqrt(1 - beta**t) / (1 - alpha**t)
    for (x, g, v, h), (new_x, new_v, new_h), (a, b) in _blocks(_grouped(tensors, 4), out, work):
        one = x.dtype.type
        g = _regularised(xp, x, g, norm_coefficient, a)  # noqa: PLW2901
        xp.multiply(g, g, out=b)
        xp.subtract(b, h, out=b)
        xp.multiply(b, one(1 - beta), out=b)
        xp.add(b, h, out=b)
        if new_h is not None:
            xp.copyto(new_h, b)
        xp.subtract(g, v, out=a)
        xp.multiply(a, one(1 - alpha), out=a)
        xp.add(a, v, out=a)
        if new_v is not None:
            xp.copyto(new_v, a)
        xp.sqrt(b, out=b)
        xp.add(b, one(epsilon), out=b)
        xp.divide(a, b, out=a)
        xp.multiply(a, one(r), out=a)
        if new_x is not None:
            xp.subtract(x, a, out=new_x)
            xp.multiply(new_x, one(1 - norm_coefficient_post), out=new_x)


@kernel("ai.onnx.preview.training::Momentum", host=(0, 1), work=_three_blocks)
def momentum(
    xp: Any, rate: Array, count: Array, *tensors: Array,
    out: Arrays, work: Arrays, alpha: float, beta: float, mode: str, norm_coefficient: float,
) -> None:  # fmt: skip
    """`x - r · v`, or `x - r · (g + alpha · v)` for Nesterov, with `v = alpha · v + beta · g`."""
    r = _number(rate)
    beta = beta if _number(count, int) > 0 else 1.0
    for (x, g, v), (new_x, new_v), (a, b, c) in _blocks(_grouped(tensors, 3), out, work):
        one = x.dtype.type
        g = _regularised(xp, x, g, norm_coefficient, a)  # noqa: PLW2901
        xp.multiply(v, one(alpha), out=b)
        xp.multiply(g, one(beta), out=c)
        xp.add(b, c, out=b)
        if new_v is not None:
            xp.copyto(new_v, b)
        if mode == "nesterov":
            xp.multiply(b, one(alpha), out=b)
            xp.add(g, b, out=b)
        xp.multiply(b, one(r), out=b)
        if new_x is not None:
            xp.subtract(x, b, out=new_x)
