"""Cases of the layout family."""

from __future__ import annotations

import numpy as np

from cases import case, fixed, integers

case("Reshape", (2, 3, 4), integers(4, 6))
case("Reshape", (2, 3, 4), integers(0, -1))
case("Reshape", (2, 3, 4), integers(-1, 2, 1, 3))
case("Reshape", (1, 1), integers([]))
case("Reshape", (), integers(1, 1))
case("Reshape", (0, 3), integers(3, 0), allowzero=1)
case("Flatten", (2, 3, 4))
for _axis in (0, 2, 3, -1):
    case("Flatten", (2, 3, 4), axis=_axis)
case("Squeeze", (1, 3, 1))
case("Squeeze", (1, 3, 1), integers([0]))
case("Squeeze", (1, 3, 1), integers(-1, 0))
case("Squeeze", (2, 3))
case("Unsqueeze", (2, 3), integers([0]))
case("Unsqueeze", (2, 3), integers(-1, 1))
case("Unsqueeze", (), integers(0, 1))
case("Transpose", (2, 3, 4))
case("Transpose", (2, 3, 4), perm=[1, 2, 0])
case("Transpose", (2, 1, 4), perm=[1, 0, 2])
case("Transpose", ())
case("Expand", (3, 1), integers(2, 3, 4))
case("Expand", (3, 4), integers([1]))
case("Expand", (3, 1), integers(3, 1))
case("Expand", (), integers(2, 3))

case("Concat", (2, 3), (2, 1), (2, 4), axis=1)
case("Concat", (2, 3), (1, 3), axis=-2)
case("Concat", (2, 3), axis=0)
case("Concat", (2, 0), (2, 3), axis=1)
case("Split", (6, 2), outputs=3, opset=13)
case("Split", (6, 2), integers(1, 3, 2), outputs=3)
case("Split", (2, 7), outputs=3, axis=-1, num_outputs=3)
case("Split", (2, 5), integers([5]), outputs=1, axis=1)
case("Split", (2, 6), outputs=2, axis=1, num_outputs=2)

case("Slice", (5, 6), integers(1, 2), integers(4, 5))
case("Slice", (5, 6), integers([1]), integers([100]), integers([1]))
case("Slice", (5, 6), integers([-4]), integers([-1]), integers([-2]))
case("Slice", (5, 6), integers(0, 1), integers(5, 6), integers(1, 0), integers(2, 3))
case("Slice", (5, 6), integers([-1]), integers([-100]), integers([0]), integers([-1]))
case("Slice", (5, 6), integers(4, 0), integers(0, 4), integers(0, 1), integers(-2, 1))
case("Slice", (5, 6), integers([3]), integers([3]))
case("Slice", (5, 6), integers([-100]), integers([-2]), integers([1]), integers([1]))
case("Slice", (7,), np.array([2], np.int32), np.array([6], np.int32), None, np.array([3], np.int32))

for _start, _end in ((0, None), (1, None), (-2, None), (0, -1), (1, 100), (2, 1)):
    _given = {"start": _start} | ({} if _end is None else {"end": _end})
    case("Shape", fixed(2, 3, 4), gradient=False, **_given)
case("Size", fixed(2, 3), gradient=False)
case("ConstantOfShape", integers(2, 3), gradient=False)
case("ConstantOfShape", integers([]), value=np.array([3.5], np.float32), gradient=False)
for _dtype in (np.float64, np.float16, np.int64, np.int8, np.uint8, np.bool_):
    case("ConstantOfShape", integers(2, 0, 3), value=np.array([1], _dtype), gradient=False)
