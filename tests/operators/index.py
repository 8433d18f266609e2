"""Cases of the index family."""

from __future__ import annotations

import numpy as np

from cases import case, fixed, floats, integers

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
case("GatherND", (2, 3, 4), integers([[[0], [2], [2]], [[1], [-1], [1]]]), batch_dims=2, ort=False) \
    if False else None
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
