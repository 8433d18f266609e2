"""Matrices of few bits: codes of 2, 4 or 8 bits in blocks along rows, each block with a scale.

A matrix `[rows, columns]` lies as bytes `[rows, blocks, block_size · bits / 8]`, the first code in
the lowest bits of a byte.  It stands for `(code - zero) · scale`, with the scale and zero point of
the block, or for `table[code] · scale`; the last block of a row may reach beyond its end.

Source: MatMulNBits and MatMulBnb4 of onnxruntime (docs/ContribOperators.md); the tables of
Dettmers et al. 2023 (arXiv:2305.14314), as bitsandbytes has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BITS = (2, 4, 8)
SLOTS = {"QuantizedMatMul": 1, "LinearCrossEntropy": 2}  # of codes, where a node has `bits`
_FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
TABLES = {"fp4": (*_FP4, *(-v for v in _FP4)), "nf4": _NF4}
"""The numbers that codes of four bits stand for, by name; the first code is in the high bits."""


def shifts(bits: int, values: str = "") -> list[int]:
    """Places of the codes of a byte, in their order."""
    places = list(range(0, 8, bits))
    return places[::-1] if values else places


def table(values: str, dtype: Any) -> np.ndarray[Any, Any]:
    """The numbers of a table by its name."""
    return np.asarray(TABLES[values], np.float32).astype(dtype)


def middle(bits: int) -> int:
    """The zero point where none is given."""
    return 1 << (bits - 1)
