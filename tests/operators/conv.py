"""Cases of the conv family."""

from __future__ import annotations

from cases import case

case("Conv", (2, 3, 7, 6), (4, 3, 3, 3))
case("Conv", (2, 3, 7, 6), (4, 3, 3, 3), (4,), pads=[1, 1, 1, 1])
case("Conv", (2, 3, 9, 8), (4, 3, 3, 2), (4,), strides=[2, 3], pads=[1, 0, 2, 1])
case("Conv", (2, 3, 9, 8), (4, 3, 3, 2), strides=[2, 2], dilations=[2, 3], pads=[2, 1, 0, 3])
case("Conv", (2, 3, 5, 4), (6, 3, 1, 1), (6,))
case("Conv", (2, 4, 5, 4), (6, 2, 1, 1), (6,), group=2)
case("Conv", (2, 3, 5, 4), (6, 3, 1, 1), (6,), strides=[2, 2])
case("Conv", (2, 4, 6, 6), (6, 2, 3, 3), (6,), group=2, pads=[1, 1, 1, 1])
case("Conv", (2, 4, 7, 6), (4, 1, 3, 3), (4,), group=4, strides=[2, 2], pads=[1, 1, 1, 1])
case("Conv", (2, 4, 7, 6), (4, 1, 3, 2), group=4, dilations=[1, 2])
case("Conv", (2, 3, 6, 6), (6, 1, 3, 3), (6,), group=3, pads=[0, 1, 2, 1])
for auto_pad in ("VALID", "SAME_UPPER", "SAME_LOWER"):
    case("Conv", (2, 2, 7, 6), (3, 2, 3, 4), (3,), auto_pad=auto_pad)
    case("Conv", (2, 2, 7, 6), (3, 2, 3, 2), auto_pad=auto_pad, strides=[2, 3])
# onnxruntime refuses dilations with SAME padding
case("Conv", (2, 2, 7, 8), (3, 2, 3, 2), auto_pad="SAME_UPPER", dilations=[2, 1], ort=False)
case("Conv", (2, 3, 9), (4, 3, 3), (4,), pads=[2, 1], strides=[2], kernel_shape=[3])
case("Conv", (2, 4, 9), (4, 1, 3), (4,), pads=[2, 0], group=4)
case("Conv", (2, 2, 4, 5, 4), (3, 2, 2, 3, 2), (3,), pads=[0, 1, 1, 1, 1, 0], strides=[1, 2, 1])
case("Conv", (2, 4, 4, 3, 4), (4, 2, 2, 2, 2), group=2, dilations=[1, 1, 2])
case("Conv", (1, 2, 3, 3), (2, 2, 3, 3), (2,))

case("ConvTranspose", (2, 3, 4, 5), (3, 4, 3, 3))
case("ConvTranspose", (2, 3, 4, 5), (3, 4, 3, 3), (4,), pads=[1, 0, 2, 1])
case("ConvTranspose", (2, 3, 4, 5), (3, 2, 2, 2), (2,), strides=[2, 2])
case("ConvTranspose", (2, 3, 4, 3), (3, 2, 3, 3), (2,), strides=[2, 3], output_padding=[1, 2])
case("ConvTranspose", (2, 3, 4, 3), (3, 2, 3, 2), strides=[2, 1], dilations=[2, 2], pads=[1] * 4)
case("ConvTranspose", (2, 4, 4, 3), (4, 3, 3, 3), (6,), group=2, strides=[2, 2], pads=[1] * 4)
case("ConvTranspose", (2, 4, 4, 3), (4, 1, 3, 3), (4,), group=4, strides=[2, 2], pads=[1] * 4)
case("ConvTranspose", (2, 3, 4, 3), (3, 2, 1, 1), (2,))
case("ConvTranspose", (2, 2, 4, 3), (2, 2, 3, 3), strides=[3, 2], output_shape=[10, 6])
case("ConvTranspose", (2, 2, 4, 3), (2, 2, 3, 3), strides=[3, 2], output_shape=[9, 5],
     auto_pad="SAME_UPPER")  # fmt: skip
for auto_pad in ("VALID", "SAME_UPPER", "SAME_LOWER"):
    case("ConvTranspose", (2, 2, 4, 3), (2, 3, 3, 4), (3,), strides=[2, 2], auto_pad=auto_pad)
# onnxruntime refuses an output padding that is not less than the stride
case("ConvTranspose", (2, 2, 3, 3), (2, 2, 2, 2), dilations=[3, 3], output_padding=[2, 1],
     strides=[2, 2], ort=False)  # fmt: skip
case("ConvTranspose", (2, 3, 5), (3, 2, 3), (2,), strides=[2], output_padding=[1], pads=[1, 1])
case("ConvTranspose", (2, 2, 3, 2, 3), (2, 2, 2, 3, 2), (2,), strides=[2, 1, 2])
