"""Cases of the reduce family."""

from __future__ import annotations

import numpy as np
from cases import case, fixed, floats, integers, positive

EVERY = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip


def input_of(name, *shape):
    return positive(*shape) if name == "ReduceLogSum" else floats(*shape, distinct=True)


for name in EVERY:
    x = input_of(name, 2, 3, 4)
    for keep in (0, 1):
        for axes in ([1], [0, 2], [-1], [2, 0, 1]):
            case(name, x, integers(axes), keepdims=keep, note=f"{axes}")
        case(name, x, keepdims=keep)
        case(name, x, integers([]).astype(np.int64), keepdims=keep, noop_with_empty_axes=1)
    case(name, x, None, noop_with_empty_axes=1)
    case(name, x, integers([]).astype(np.int64))
    case(name, positive(), note="0-d", ort=False)
    case(name, fixed(2, 700, 3, low=0.95, high=1.05), integers([1]), gradient=False)
case("ReduceProd", np.array([[0.0, 2, 3], [0, 0, 4]], np.float32), integers([1]), gradient=False)
for name in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare"):
    case(name, integers([[1, -2], [3, 4]]).astype(np.int32), integers([1]), gradient=False)

for exclusive in (0, 1):
    for reverse in (0, 1):
        for axis in (0, 1, -1):
            case(
                "CumSum",
                (2, 3, 4),
                integers(axis),
                exclusive=exclusive,
                reverse=reverse,
                note=f"{axis}",
            )
case("CumSum", integers([1, 2, 3]), integers(0), gradient=False)

# onnxruntime has no CumProd.
for exclusive in (0, 1):
    for reverse in (0, 1):
        case("CumProd", (2, 4, 3), np.int64(1), opset=26, exclusive=exclusive, reverse=reverse,
             ort=False)  # fmt: skip
case("CumProd", (4,), np.int64(-1), opset=26, ort=False)
case("CumProd", (1, 3), np.int64(0), opset=26, ort=False)
