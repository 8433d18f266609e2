"""Cases of the layout family."""

from __future__ import annotations

import numpy as np
from cases import case, fixed, floats, integers

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

for _kind, _value in (
    ("value", np.array([[1, 2]], np.int32)),
    ("value_int", 3),
    ("value_ints", [1, 2, 3]),
    ("value_float", 0.5),
    ("value_floats", [0.5, 1.5]),
):
    case("Constant", gradient=False, **{_kind: _value})
for _numbers in ((0, 5, 1), (10, 3, -2), (3, 3, 1)):
    case("Range", *(np.asarray(n) for n in _numbers), gradient=False)
case("Range", floats(low=0.1, high=0.2), fixed(low=5.05, high=5.06), floats(low=0.99, high=1.01))
case("Range", *(np.asarray(n, np.float32) for n in (0.5, 4.1, 0.25)), gradient=False)

case("Pad", (3, 4), integers([1, 0, 2, 3]))
case("Pad", (3, 4), integers([1, 0, 2, 3]), (), mode="constant")
case("Pad", (3, 4), integers([-1, 2, 0, -3]), ())
case("Pad", (2, 3, 4), integers([1, 2]), None, integers([-2]))
case("Pad", (2, 3, 4), integers([1, 0, 2, 2]), (), integers([2, 0]))
for _mode in ("reflect", "edge", "wrap"):
    case("Pad", (3, 4), integers([1, 2, 2, 3]), mode=_mode)
    case("Pad", (3, 4, 2), integers([2, 1]), None, integers([1]), mode=_mode)
    case("Pad", (5, 4), integers([0, 1, 0, 0]), mode=_mode)
    case("Pad", (2, 3), integers([0, 0, 0, 0]), mode=_mode)
case("Pad", (6, 4), integers([-2, 2, 3, -1]), mode="edge", ort=False)
case("Pad", (6, 4), integers([-2, 2, 3, -1]), mode="reflect", ort=False)
case("Pad", (3,), integers([5, 7]), mode="wrap")
for _pads in ([2, 0, -1, 0], [-2, 1, 3, 0], [7, -1, -3, 2]):  # what is left wraps around
    case("Pad", (7, 3), integers(_pads), mode="wrap")

case("Tile", (2, 3), integers([2, 2]))
case("Tile", (2, 3), integers([1, 3]))
case("Tile", (2, 1, 3), integers([3, 2, 1]))
for _upper in (0, 1):
    case("Trilu", (3, 4), upper=_upper)
    case("Trilu", (2, 4, 3), np.asarray(1), upper=_upper)
    case("Trilu", (2, 4, 3), np.asarray(-2), upper=_upper)
    case("Trilu", (3, 3), np.asarray(7), upper=_upper)
case("CenterCropPad", (4, 7), integers([7, 4]))
case("CenterCropPad", (4, 7, 2), integers([5, 9]), axes=[0, 1])
case("CenterCropPad", (4, 7, 2), integers([1]), axes=[-2])
case("DepthToSpace", (2, 8, 2, 3), blocksize=2)
case("DepthToSpace", (2, 8, 2, 3), blocksize=2, mode="CRD")
case("DepthToSpace", (1, 18, 2, 1), blocksize=3, mode="DCR")
case("SpaceToDepth", (2, 2, 4, 6), blocksize=2)

case("Resize", (2, 3, 3, 4), None, np.array([1, 1, 2, 2], np.float32), mode="nearest",
     coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
case("Resize", (1, 2, 3, 4), None, np.array([1, 1, 2, 3], np.float32))
case("Resize", (1, 2, 3, 4), None, None, integers([1, 2, 6, 8]))
case("Resize", (1, 2, 6, 9), None, np.array([1, 1, 0.5, 1 / 3], np.float32))
case("Resize", (1, 1, 4, 5), None, np.array([1, 1, 1, 1], np.float32), mode="linear")
for _mode in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
    for _kind in ("nearest", "linear", "cubic"):
        for _numbers in ((1.5, 2.0), (0.75, 0.5), (0.5, 2.0)):
            _scales = np.array([1, 1, *_numbers], np.float32)
            case("Resize", (1, 2, 4, 6), None, _scales, mode=_kind, note=f"x{_numbers}",
                 coordinate_transformation_mode=_mode)  # fmt: skip
        case("Resize", (1, 2, 4, 6), None, None, integers([1, 2, 7, 3]), mode=_kind,
             coordinate_transformation_mode=_mode)  # fmt: skip
for _nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
    for _mode in ("half_pixel", "asymmetric", "align_corners"):
        case("Resize", (1, 1, 5, 4), None, np.array([1, 1, 1.6, 0.5], np.float32),
             nearest_mode=_nearest, coordinate_transformation_mode=_mode)  # fmt: skip
for _kind in ("nearest", "linear", "cubic"):
    case("Resize", (1, 2, 4, 5), np.array([0, 0, 0.2, 0.1, 1, 1, 0.9, 1.3], np.float32), None,
         integers([1, 2, 5, 3]), mode=_kind, extrapolation_value=3.0,
         coordinate_transformation_mode="tf_crop_and_resize")  # fmt: skip
    case("Resize", (1, 1, 5, 7), None, np.array([1, 1, 0.6, 0.5], np.float32), mode=_kind,
         coordinate_transformation_mode="half_pixel_symmetric")  # fmt: skip
    for _policy in ("not_larger", "not_smaller"):
        case("Resize", (1, 1, 5, 7), None, None, integers([8, 9]), mode=_kind, axes=[2, 3],
             keep_aspect_ratio_policy=_policy)  # fmt: skip
for _kind in ("linear", "cubic"):
    case(
        "Resize",
        (1, 1, 8, 6),
        None,
        np.array([1, 1, 0.6, 0.4], np.float32),
        mode=_kind,
        antialias=1,
    )
    case(
        "Resize", (1, 1, 4, 3), None, np.array([1, 1, 1.5, 2], np.float32), mode=_kind, antialias=1
    )
case("Resize", (1, 1, 4, 5), None, np.array([1, 1, 0.8, 1.7], np.float32), mode="cubic",
     cubic_coeff_a=-0.5, exclude_outside=1)  # fmt: skip
case("Resize", (2, 5), None, np.array([1, 1.7], np.float32), mode="linear")
case("Resize", (5,), None, np.array([2], np.float32), note="one axis")
case("Resize", (1, 1, 2, 3, 4), None, np.array([1, 1, 2, 1.5, 0.5], np.float32), mode="linear")
case("Resize", (1, 4, 3, 2), None, np.array([2, 1.5], np.float32), mode="linear", axes=[2, 1])
case("Resize", np.arange(12, dtype=np.uint8).reshape(1, 1, 3, 4), None,
     np.array([1, 1, 1.5, 2.5], np.float32), gradient=False)  # fmt: skip

case("Col2Im", (1, 5, 5), integers(5, 5), integers(1, 5))
case("Col2Im", (2, 12, 4), integers(5, 5), integers(2, 2), strides=[2, 2])
case("Col2Im", (1, 6, 16), integers(4, 5), integers(3, 2), pads=[1, 0, 1, 0])
case("Col2Im", (1, 4, 9), integers(4, 5), integers(2, 2), dilations=[1, 2])
case("Col2Im", (2, 6, 4), integers(4, 4), integers(3, 2), pads=[2, 1, 0, 1], strides=[2, 2],
     dilations=[1, 2], note="all")  # fmt: skip
case("Col2Im", (1, 4, 32), integers(3, 4, 5), integers(2, 1, 2))
case("ReverseSequence", (4, 3, 2), integers(1, 4, 2))
case("ReverseSequence", (3, 4), integers(1, 4, 2), batch_axis=0, time_axis=1)

starts = np.array([1, 3], np.int64)
for mode, kept in (("linear", 2), ("circular", 3)):
    case("TensorScatter", (2, 3, 5, 2), (2, 3, kept, 2), starts, opset=24, mode=mode)
case("TensorScatter", (2, 5, 2), (2, 2, 2), opset=24)
case("TensorScatter", (2, 4, 3), (2, 4, 2), np.array([0, 1]), opset=24, axis=-1)
case("BitCast", np.array([1.5, -2], np.float32), opset=26, gradient=False, to=6)
case("BitCast", np.array([[7, -1]], np.int64), opset=26, gradient=False, to=11)
