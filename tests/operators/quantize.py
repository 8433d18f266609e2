"""Cases of the quantize family."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from cases import case, fixed, positive

BYTE = np.array([[3, 200, 7], [128, 0, 255]], np.uint8)
SIGNED = np.array([[3, -100, 7], [127, 0, -128]], np.int8)
zero = np.uint8(128)
case("DequantizeLinear", BYTE, positive(), zero)
case("DequantizeLinear", SIGNED, positive())
case("DequantizeLinear", SIGNED, positive(1), np.zeros(1, np.int8), opset=21)
case("DequantizeLinear", BYTE, positive(3), np.array([128, 0, 3], np.uint8), axis=1)
case("DequantizeLinear", BYTE, positive(2), np.array([128, 9], np.uint8), axis=0)
case("DequantizeLinear", SIGNED, positive(2, 2), np.ones((2, 2), np.int8), axis=1, block_size=2,
     opset=21)  # fmt: skip
case("DequantizeLinear", SIGNED, positive(1, 3), axis=0, block_size=2, opset=21)
case("DequantizeLinear", BYTE.astype(ml_dtypes.float8_e4m3fn), fixed(), gradient=False, opset=19)
case("DequantizeLinear", np.arange(6).astype(np.int32), fixed(), gradient=False)
for dtype in (np.int8, np.uint8, np.int16, np.uint16):
    case(
        "QuantizeLinear", fixed(3, 4, low=-9, high=9), np.float32(0.05), dtype(3), gradient=False,
        opset=21, note=dtype.__name__,
    )  # fmt: skip
case("QuantizeLinear", fixed(3, 4), np.float32([0.1, 0.2, 0.3, 0.4]), gradient=False, axis=1)
# onnxruntime's Python interface returns no arrays of these types; the backend suite has them.
for name in ("int4", "uint4"):
    small = np.dtype(getattr(ml_dtypes, name))
    case("QuantizeLinear", fixed(3, 4), np.float32(0.5), np.array(1, small), gradient=False,
         opset=21, note=name, ort=False)  # fmt: skip
case(
    "QuantizeLinear", fixed(2, 4), np.float32([[0.1, 0.2], [0.3, 0.4]]), gradient=False, axis=1,
    block_size=2, opset=21, output_dtype=3,
)  # fmt: skip
for name in ("float8_e4m3fn", "float8_e5m2"):
    small = np.dtype(getattr(ml_dtypes, name))
    case("QuantizeLinear", fixed(3, 4, low=-900, high=900), np.float32(0.5), np.array(0, small),
         gradient=False, opset=19, note=name, ort=False)  # fmt: skip
case("DynamicQuantizeLinear", fixed(3, 4), outputs=3, gradient=False)
case("DynamicQuantizeLinear", fixed(3, 4, low=1, high=2), outputs=3, gradient=False)

case("MatMulInteger", BYTE, SIGNED.T, gradient=False)
case("MatMulInteger", BYTE, SIGNED.T.copy(), zero, np.int8(2), gradient=False, note="zeros")
case(
    "QLinearMatMul", BYTE, np.float32(0.02), zero, BYTE.T.copy(), np.float32(0.03), np.uint8(3),
    np.float32(0.9), np.uint8(100), gradient=False,
)  # fmt: skip
images = np.arange(2 * 3 * 5 * 5, dtype=np.uint8).reshape(2, 3, 5, 5)
weights = np.arange(4 * 3 * 3 * 3, dtype=np.uint8).reshape(4, 3, 3, 3)
case("ConvInteger", images, weights, np.uint8(7), np.uint8(3), gradient=False, pads=[1, 1, 1, 1])
case(
    "QLinearConv", images, np.float32(0.02), np.uint8(9), weights, np.float32([0.1, 0.2, 0.3, 0.4]),
    np.uint8([3, 3, 3, 3]), np.float32(7.7), np.uint8(12), np.arange(4, dtype=np.int32) * 100,
    gradient=False, strides=[2, 2],
)  # fmt: skip

rng = np.random.default_rng(0)
PRODUCT = "ai.gradtool::QuantizedMatMul"


def codes(*shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, np.uint8)


for bits in (2, 4, 8):
    packed = codes(3, 2, 2 * bits)
    for turned, shape in ((1, (2, 5, 20)), (0, (4, 3))):
        given = {"bits": bits, "block_size": 16, "size": 20, "turned": turned}
        case(PRODUCT, shape, packed, fixed(3, 2), **given)
        case(PRODUCT, shape, packed, fixed(3, 2), codes(3, -(-2 * bits // 8)), opset=21, **given)
        case(PRODUCT, shape, packed, fixed(3, 2), fixed(3, 2, low=0, high=9), **given)
        case(PRODUCT, shape, packed, fixed(3, 2), codes(3, -(-2 * bits // 8)),
             rng.integers(0, 2, 20).astype(np.int32), **given)  # fmt: skip
groups = rng.integers(0, 2, 32).astype(np.int32)
case(PRODUCT, (2, 32), codes(3, 2, 8), fixed(3, 2), None, groups, bits=4, block_size=16, size=32)
case(PRODUCT, (32,), codes(3, 2, 8), fixed(3, 2), opset=21, bits=4, block_size=16, size=32)
for values in ("fp4", "nf4"):
    for turned, shape in ((1, (5, 32)), (0, (4, 3))):
        case(PRODUCT, shape, codes(3, 2, 8), fixed(3, 2), bits=4, block_size=16, size=32,
             turned=turned, values=values)  # fmt: skip
# So large that rows and columns are cut.
small = fixed(300, 40, low=-0.01, high=0.01, gap=0)
given = {"bits": 4, "block_size": 16, "size": 635}
case(PRODUCT, (3, 300), codes(300, 40, 8), small, turned=0, **given)
case(PRODUCT, (2, 635), codes(300, 40, 8), small, **given)
