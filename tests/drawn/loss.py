"""Losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from drawn.case import Case, Draw, Given, draws


@draws("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def loss(d: Draw) -> Case:
    classes = d.int(1, 5)
    rest = [d.size(1, 3) for _ in range(d.int(0, 3))]
    shape = (d.size(1, 4), classes, *rest)
    labels = d.rng.integers(0, classes, (shape[0], *rest))
    given = d.maybe(reduction=d.one("none", "sum", "mean"))
    if d.flag(0.4):
        ignored = d.one(-1, 0, 255, classes - 1)
        given["ignore_index"] = ignored
        labels = np.where(d.rng.random(labels.shape) < 0.3, ignored, labels)
        if (labels == ignored).all():
            free = [c for c in range(classes) if c != ignored]
            if free:
                labels.reshape(-1)[0] = free[0]
            else:
                del given["ignore_index"]
                labels = np.zeros(labels.shape)
    weights = d.x((classes,), 0.3, 2.0, 0.0) if d.flag(0.4) else None
    outputs = d.int(1, 2) if d.op.startswith("Softmax") else 1
    kind = d.one(np.int64, np.int32)
    rough = 4.0 + math.prod(shape) / 8
    return d.case(
        d.x(shape), d.fixed(labels.astype(kind)), weights, outputs=outputs, rough=rough, **given
    )


@draws("ai.gradtool::LinearCrossEntropy")
def linear(d: Draw) -> Case:
    rows, width, classes = d.size(1, 5), d.int(1, 4), d.int(1, 7)
    turned = d.int(0, 1)
    labels = d.rng.integers(0, classes, (rows,))
    given = d.maybe(scale=d.one(0.5, 2.0), softcap=d.one(1.5, 4.0))
    if d.flag(0.4):
        given["ignore_index"] = ignored = d.one(-1, 0, 255)
        labels = np.where(d.rng.random(labels.shape) < 0.3, ignored, labels)
    bias = d.x((classes,)) if d.flag() else None
    even, shares = d.int(0, 1), None
    if even and d.flag():
        shares = d.fixed(d.rng.uniform(0.2, 2.0, classes))
    w = (classes, width) if turned else (width, classes)
    labels = d.fixed(labels.astype(d.one(np.int64, np.int32)))
    rank = d.int(1, 3)
    adapter = [d.x((rows, rank)), d.x((rank, classes))] if d.flag(0.4) else []
    weights, matrix, outputs = d.x(w), [], d.int(1, 2) + even
    if turned and d.flag():
        width = d.int(1, 40)
        weights, matrix, coding = _coded(d, classes, width)
        adapter, given = adapter or [None, None], given | coding
    return d.case(
        d.x((rows, width)), labels, weights, bias, shares, *adapter, *matrix, outputs=outputs,
        rough=8.0, even=even, transB=turned, **given,
    )  # fmt: skip


def _coded(d: Draw, classes: int, width: int) -> tuple[Given, list[Given | None], dict[str, Any]]:
    """A matrix of few bits: its codes, scale, zero and groups, and its attributes."""
    bits, size = d.one(2, 4, 8), d.one(16, 32)
    blocks = -(-width // size)

    def packed(*shape: int) -> Given:
        return d.constant(d.rng.integers(0, 256, shape).astype(np.uint8))

    coding = {"bits": bits, "block_size": size, "size": width}
    zero = groups = None
    if bits == 4 and d.flag(0.3):
        coding["values"] = d.one("fp4", "nf4")
    else:
        offset = d.constant(d.numbers((classes, blocks), 0, 2**bits - 1))
        zero = d.one(None, packed(classes, -(-blocks * bits // 8)), offset)
        groups = d.constant(d.rng.integers(0, blocks, width).astype(np.int32)) if d.flag() else None
    scale = d.constant(d.numbers((classes, blocks), 0.3, 1.5) / 2**bits)
    return packed(classes, blocks, size * bits // 8), [scale, zero, groups], coding
