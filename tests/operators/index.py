"""Cases of the index family."""

from __future__ import annotations

import numpy as np
from cases import case, fixed, floats, integers, positive

_rng = np.random.default_rng(3)

case("Gather", (5, 3), integers([[0, 4, 2], [2, 2, -1]]))
case("Gather", (5, 3), integers([1, 0, 1]), axis=1)
case("Gather", (5, 3), integers(3))
case("Gather", (5, 3), integers(-2), axis=-1)
case("Gather", (2, 5, 3), integers([[4, -5], [0, 0]]), axis=1)
case("Gather", (5, 3), np.array([1, 1], np.int32))
case("Gather", (5,), integers([0, 0, 4, -1, 0]))
case("Gather", (5, 3), integers(np.zeros((0,), np.int64)))
case("Gather", (7, 130), integers([6, 0, 6, 6]))
case("GatherElements", (3, 4), integers([[0, 1, 2, 0], [2, 2, 2, -1]]))
case("GatherElements", (3, 4), integers([[0, -1], [2, 2], [1, 3]]), axis=1)
case("GatherElements", (3, 4), integers([[0, -1], [2, 2]]), axis=-1)
case("GatherElements", (3, 70, 90), _rng.integers(-70, 70, (3, 90, 90)), axis=1)
case("GatherND", (3, 4, 2), integers([[0, 1], [2, -1], [0, 1]]))
case("GatherND", (3, 4, 2), integers([[[0], [1]], [[-1], [1]]]))
case("GatherND", (3, 4), integers([[0, 1], [2, 3], [2, 3]]))
case("GatherND", (3, 4), integers([1, 2]))
case("GatherND", (2, 3, 4), integers([[[0], [2], [0]], [[1], [-1], [1]]]), batch_dims=1)
case("GatherND", (2, 3, 4), integers([[[0], [2], [2]], [[1], [-1], [1]]]), batch_dims=2)
for _op in ("ArgMax", "ArgMin"):
    for _axis in (0, 1, -1):
        case(_op, fixed(3, 4, 2, distinct=True), axis=_axis, gradient=False)
    case(_op, fixed(3, 4, distinct=True), axis=1, keepdims=0, gradient=False)
    case(_op, np.array([[1, 2, 2], [3, 3, 1]], np.float32), axis=1, gradient=False)
    case(_op, np.array([[1, 2, 2], [3, 3, 1]], np.int32), axis=0, gradient=False)
    for _axis in (0, 1):
        case(
            _op, np.array([[2, 2, 1], [2, 1, 1]], np.float32),
            axis=_axis, select_last_index=1, keepdims=0, gradient=False,
        )  # fmt: skip

case("ScatterElements", (3, 4), integers([[0, 1, 2, 0], [2, 2, 0, -2]]), (2, 4))
case("ScatterElements", (3, 4), integers([[0, -1], [2, 1]]), (2, 2), axis=1)
case("ScatterElements", (3, 4), integers([[0, -1], [2, 2]]), (2, 2), axis=-1, reduction="add")
case("ScatterElements", (3, 4), integers([[0, 1, 2, 0], [0, 2, 2, -3]]), (2, 4), reduction="add")
case("ScatterElements", floats(3, 4, gap=0.3), integers([[0, 1, 2, 0], [0, 2, 2, -3]]),
     floats(2, 4, gap=0.3), reduction="mul")  # fmt: skip
case(
    "ScatterElements",
    floats(5, distinct=True),
    integers([0, 0, 0, 3]),
    positive(4),
    reduction="mul",
)
for _how in ("max", "min"):
    case("ScatterElements", floats(3, 4, distinct=True), integers([[0, 1, 2, 0], [0, 2, 2, -3]]),
         floats(2, 4, distinct=True, low=-1.9, high=2.1), reduction=_how)  # fmt: skip
    case("ScatterND", floats(3, 4, distinct=True), integers([[0], [2], [0]]),
         floats(3, 4, distinct=True, low=-1.9, high=2.1), reduction=_how)  # fmt: skip
case("ScatterND", (3, 4), integers([[0], [2]]), (2, 4))
case("ScatterND", (3, 4, 2), integers([[[0, 1], [2, -1]], [[1, 1], [0, 0]]]), (2, 2, 2))
case("ScatterND", (3, 4), integers([[0, 1], [2, -1], [0, 0]]), (3,))
case("ScatterND", (3, 4), integers([[0], [2], [0]]), (3, 4), reduction="add", ort=False)
case("ScatterND", (3, 4), integers([[0], [2], [1]]), (3, 4), reduction="add")
case("ScatterND", floats(3, 4, gap=0.3), integers([[0], [2], [0]]), floats(3, 4, gap=0.3),
     reduction="mul")  # fmt: skip
case("ScatterND", (3, 130), integers([[0], [-1]]), (2, 130))

for _axis in (0, 1, -1):
    for _largest in (0, 1):
        case("TopK", floats(3, 4, 5, distinct=True), integers([2]), axis=_axis, largest=_largest,
             outputs=2)  # fmt: skip
case("TopK", floats(6, distinct=True), integers([6]), outputs=2)
case("TopK", np.array([[1, 2, 2, 1], [3, 3, 3, 3]], np.float32), integers([3]), outputs=2,
     gradient=False)  # fmt: skip
case("TopK", np.array([[1, 2, 2, 1], [3, 3, 3, 3]], np.int64), integers([3]), outputs=2, largest=0,
     gradient=False)  # fmt: skip
case("NonZero", np.array([[1, 0, 2], [0, 0, 3]], np.float32), gradient=False)
case("NonZero", np.array([False, True]), gradient=False)
case("OneHot", integers([0, 2, -1, 5]), integers([3]), (2,))
case("OneHot", integers([[0, 2], [1, 1]]), np.asarray(3), (2,), axis=1)
case("OneHot", integers([[0, 2], [1, 1]]), np.asarray(3), (2,), axis=0)
case("Compress", (3, 4), np.array([False, True, True]), axis=0)
case("Compress", (3, 4), np.array([True, False, True]), axis=-1)
case("Compress", (3, 4), np.array([True, False, True, True, False, False]))
case("Unique", floats(6, distinct=True), outputs=1)
case("Unique", np.array([2, 1, 1, 3, 4, 3], np.float32), outputs=4, gradient=False)
case("Unique", np.array([2, 1, 1, 3, 4, 3], np.float32), outputs=4, sorted=0, gradient=False)
case("Unique", np.array([[1, 0, 0], [1, 0, 0], [2, 3, 4]], np.float32), outputs=4, axis=0,
     gradient=False)  # fmt: skip
case("Unique", floats(3, 2, distinct=True), outputs=2, axis=0, sorted=0)
