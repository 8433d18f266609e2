"""Cases of the pool family."""

from __future__ import annotations

from cases import case, floats, integers


def distinct(*shape):
    return floats(*shape, distinct=True)


x = distinct(2, 3, 7, 8)
case("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
case("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
case("MaxPool", x, kernel_shape=[3, 2], strides=[1, 3], pads=[1, 0, 2, 1], outputs=2)
case("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
case("MaxPool", x, kernel_shape=[3, 3], strides=[2, 3], ceil_mode=1, pads=[1, 0, 1, 1])
case("MaxPool", x, kernel_shape=[2, 3], dilations=[3, 2], strides=[1, 2])
case("MaxPool", x, kernel_shape=[3, 3], strides=[2, 1], storage_order=1, outputs=2)
case("MaxPool", distinct(2, 2, 9), kernel_shape=[3], strides=[2], pads=[1, 0])
case("MaxPool", distinct(2, 2, 4, 3, 5), kernel_shape=[2, 2, 3], pads=[0, 1, 1, 0, 0, 1])
places = {"outputs": 2, "gradient": False}
case("ai.gradtool::MaxPoolTraining", x, kernel_shape=[2, 2], strides=[2, 2], **places)
case("ai.gradtool::MaxPoolTraining", x, kernel_shape=[3, 2], strides=[1, 3], pads=[1, 0, 2, 1],
     **places)  # fmt: skip
case("ai.gradtool::MaxPoolTraining", x, kernel_shape=[3, 3], strides=[2, 3], ceil_mode=1,
     pads=[1, 0, 1, 1], **places)  # fmt: skip
case("ai.gradtool::MaxPoolTraining", distinct(2, 3, 20, 18), kernel_shape=[2, 3], strides=[3, 2],
     auto_pad="SAME_LOWER", **places)  # fmt: skip
case("ai.gradtool::MaxPoolTraining", distinct(2, 2, 9), kernel_shape=[3], strides=[2],
     pads=[1, 0], **places)  # fmt: skip
case("ai.gradtool::MaxPoolTraining", distinct(2, 2, 4, 3, 5), kernel_shape=[2, 2, 3],
     pads=[0, 1, 1, 0, 0, 1], **places)  # fmt: skip
for auto_pad in ("VALID", "SAME_UPPER", "SAME_LOWER"):
    case("MaxPool", x, kernel_shape=[3, 2], strides=[2, 3], auto_pad=auto_pad)
    case("AveragePool", (2, 3, 7, 8), kernel_shape=[3, 2], strides=[2, 3], auto_pad=auto_pad)
    case("AveragePool", (2, 3, 7, 8), kernel_shape=[3, 4], auto_pad=auto_pad, count_include_pad=1)

for count_include_pad in (0, 1):
    include = {"count_include_pad": count_include_pad}
    case("AveragePool", (2, 3, 7, 8), kernel_shape=[3, 2], strides=[2, 2], **include)
    case("AveragePool", (2, 3, 7, 8), kernel_shape=[3, 2], pads=[1, 0, 2, 1], **include)
    case("AveragePool", (2, 3, 7, 8), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4,
         ceil_mode=1, **include)  # fmt: skip
    case("AveragePool", (2, 3, 7, 8), kernel_shape=[2, 3], dilations=[3, 2], pads=[1, 2, 0, 1],
         **include)  # fmt: skip
    case("AveragePool", (2, 2, 9), kernel_shape=[3], strides=[2], pads=[1, 0], **include)
    case("AveragePool", (2, 2, 4, 3, 5), kernel_shape=[2, 2, 3], pads=[0, 1, 1, 0, 0, 1], **include)
case("AveragePool", (2, 3, 6, 8), kernel_shape=[3, 3], strides=[2, 3], ceil_mode=1)

for shape in ((2, 3, 5), (2, 3, 4, 5), (2, 1, 2, 3, 2)):
    case("GlobalAveragePool", shape)
    case("GlobalMaxPool", distinct(*shape))
    for p in (1, 2, 3):
        case("GlobalLpPool", shape, p=p)

for p in (1, 2, 3):
    case("LpPool", (2, 3, 7, 8), kernel_shape=[3, 2], strides=[2, 3], p=p)
    case("LpPool", (2, 3, 7, 8), kernel_shape=[3, 2], pads=[1, 0, 2, 1], p=p)
case("LpPool", (2, 3, 7, 8), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
case("LpPool", (2, 3, 7, 8), kernel_shape=[2, 2], dilations=[2, 3])
case("LpPool", (2, 3, 7, 8), kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER")
case("LpPool", (2, 3, 9), kernel_shape=[3], strides=[2], auto_pad="SAME_LOWER")

case("MaxUnpool", (1, 2, 2, 2), integers([[[[5, 7], [8, 10]], [[16, 18], [29, 31]]]]),
     kernel_shape=[2, 2], strides=[2, 2])  # fmt: skip
# onnxruntime counts the places in the given shape, the specification in that of the pooling
case("MaxUnpool", (1, 1, 2, 2), integers([[[[5, 7], [13, 15]]]]), integers(1, 1, 5, 5),
     kernel_shape=[2, 2], strides=[2, 2], ort=False)  # fmt: skip
