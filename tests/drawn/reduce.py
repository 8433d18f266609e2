"""Reductions and running sums."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from drawn.case import Case, Draw, Given, draws

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


def _numbers(d: Draw, shape: tuple[int, ...]) -> Given:
    if d.op == "ReduceLogSum":
        return d.x(shape, 0.3, 2.0, 0.0)
    if d.op == "ReduceProd":
        return d.x(shape, -1.6, 1.6, 0.4)
    return d.x(shape, apart=d.op in ("ReduceMax", "ReduceMin"))


@draws(*REDUCTIONS)
def reduce(d: Draw) -> Case:
    """Nothing is taken over no elements, of which only sums and products are told."""
    whole = d.op in ("ReduceSum", "ReduceSumSquare", "ReduceProd", "ReduceL1")
    shape = d.shape(least=0 if whole else 1)
    given: dict[str, Any] = d.maybe(keepdims=d.int(0, 1), noop_with_empty_axes=d.int(0, 1))
    form = d.int(0, 3)
    axes = None
    if form == 1:
        axes = d.sizes([])
    elif form > 1 and shape:
        axes = d.sizes(d.axes(len(shape), least=1))
    return d.case(_numbers(d, shape), axes, **given)


@draws("CumSum", "CumProd")
def running(d: Draw) -> Case:
    shape = d.shape(low=1)
    axis = d.fixed(np.asarray(d.axis(len(shape)), d.one(np.int64, np.int32)))
    axis = dataclasses.replace(axis, constant=axis.constant or d.op == "CumProd")
    given = d.maybe(exclusive=d.int(0, 1), reverse=d.int(0, 1))
    opset: Any = 26 if d.op == "CumProd" else (18, 20)
    return d.case(d.x(shape, gap=0.3), axis, opset=opset, **given)
