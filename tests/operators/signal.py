"""Cases of the signal family."""

from __future__ import annotations

import numpy as np
from cases import case, floats, integers

# Lengths that are no power of two lose three bits in onnxruntime.
for size in (8, 6, 5):
    exact = size == 8
    for onesided in (0, 1):
        case("DFT", (2, size, 1), None, integers(1), onesided=onesided, ort=exact)
    case("DFT", (2, size, 2), None, integers(1), ort=exact)
    case("DFT", (2, size, 2), None, integers(1), inverse=1, ort=exact)
    case("DFT", (2, size, 2), integers(2 * size - 2), integers(1), inverse=1, onesided=1, ort=False)
    case("DFT", (2, size, 2), integers(2 * size - 1), integers(1), inverse=1, onesided=1, ort=False)
case("DFT", (2, 4, 2), inverse=1, onesided=1, ort=False)  # onnxruntime has no such inverse
case("DFT", (2, 4, 2))
case("DFT", (2, 4, 3, 2), None, integers(-3))
case("DFT", (2, 4, 1), integers(8))
case("DFT", (2, 6, 1), integers(4), onesided=1)
case("DFT", (2, 6, 2), integers(4), inverse=1)
case("DFT", (2, 4, 2), integers(7), inverse=1, ort=False)
case("DFT", (2, 4, 1), opset=18)
case("DFT", (2, 6, 2, 1), opset=19, axis=2, onesided=1)

for channels, onesided in ((1, 1), (1, 0), (2, 0)):
    signal = floats(2, 12, channels)
    case("STFT", signal, integers(3), (6,), onesided=onesided, ort=False)
    case("STFT", signal, integers(3), (4,), onesided=onesided)
    case("STFT", signal, integers(2), None, integers(4), onesided=onesided)
case("STFT", floats(1, 8, 1), integers(4), (4,), integers(4), onesided=1)
case("STFT", floats(2, 12, 1), integers(5), floats(4), onesided=1, opset=18)
for name in ("HannWindow", "HammingWindow", "BlackmanWindow"):
    for periodic in (0, 1):
        case(name, integers(9), gradient=False, periodic=periodic)
case(
    "MelWeightMatrix", integers(8), integers(16), integers(8192), np.float32(0), np.float32(4096),
    gradient=False,
)  # fmt: skip
