"""Cases of the pool family."""

from __future__ import annotations

from cases import case, floats


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
