"""Window functions and the mel filter bank."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays

COSINES = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


def _window(name: str, a: float, b: float, c: float) -> None:
    @kernel(name, host=(0,))
    def run(
        xp: Any, size: Array, *, out: Arrays, output_datatype: int = 1, periodic: int = 1
    ) -> None:
        """`a - b cos(2πn/N) + c cos(4πn/N)`, with N the size, or one less if not periodic."""
        count = int(np.ravel(size)[0])
        angle = 2 * np.pi * np.arange(count) / max(count if periodic else count - 1, 1)
        values = a - b * np.cos(angle) + c * np.cos(2 * angle)
        xp.copyto(out[0], xp.asarray(values), casting="unsafe")


for _name, _terms in COSINES.items():
    _window(_name, *_terms)


@kernel("MelWeightMatrix", host=(0, 1, 2, 3, 4), temporaries=lambda *, out: 2 * out[0].bytes)
def mel_weight_matrix(
    xp: Any, bins: Array, dft_length: Array, sample_rate: Array, lower: Array, upper: Array, *,
    output_datatype: int = 1,
) -> Array:  # fmt: skip
    """Triangles, equally wide on the mel scale: one column per mel bin, one row per frequency."""
    bins, length, rate = (int(np.ravel(v)[0]) for v in (bins, dft_length, sample_rate))
    low, high = (2595 * math.log10(1 + float(np.ravel(v)[0]) / 700) for v in (lower, upper))
    mel = low + np.arange(bins + 2) * (high - low) / (bins + 2)
    edges = ((length + 1) * 700 * (10 ** (mel / 2595) - 1) // rate).astype(np.int64)
    matrix = np.zeros((length // 2 + 1, bins))
    for column, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        if left == centre:
            matrix[centre, column] = 1
        else:
            rise = np.arange(left, centre + 1)
            matrix[rise, column] = (rise - left) / (centre - left)
        if right > centre:
            fall = np.arange(centre, right)
            matrix[fall, column] = (right - fall) / (right - centre)
    return xp.asarray(matrix.astype(ir.DataType(output_datatype).numpy()))
