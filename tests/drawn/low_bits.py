"""Products with matrices, and rows of tables, of few bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from drawn.case import Array, Case, Draw, Given, draws

MS = "com.microsoft::"
TYPES = ("float32", "float32", "float16")


def _bytes(d: Draw, *shape: int) -> Given:
    return d.constant(d.rng.integers(0, 256, shape).astype(np.uint8))


def _scales(d: Draw, *shape: int) -> Given:
    return d.constant(d.numbers(shape, 0.01, 0.1))


@draws(f"{MS}MatMulNBits")
def matmul_nbits(d: Draw) -> Case:
    bits, size = d.one(2, 4, 8), d.one(16, 32, 64, 128, 256)
    n, k = d.int(1, 40), d.int(1, 300)
    blocks = -(-k // size)
    zero = d.one(None, _bytes(d, n, -(-blocks * bits // 8)))
    if bits < 8 and d.flag(0.3):  # nor one of 8 bits and floats
        zero = d.constant(d.numbers((n, blocks), 0, 2**bits - 1))
    groups = bias = None
    if bits == 4 and zero is None and d.flag(0.3):  # onnxruntime has no other of it
        groups = d.constant(d.rng.permutation(np.arange(k) // size).astype(np.int32))
    if d.flag(0.3):
        bias = d.x((n,))
    given: dict[str, Any] = d.maybe(accuracy_level=d.one(0, 1))
    return d.case(
        d.x((*d.shape(0, 2, least=1), k)), _bytes(d, n, blocks, size * bits // 8),
        _scales(d, n, blocks), zero, groups, bias,
        bits=bits, block_size=size, N=n, K=k, dtypes=TYPES, rough=4.0, **given,
    )  # fmt: skip


@draws(f"{MS}MatMulBnb4")
def matmul_bnb4(d: Draw) -> Case:
    size, n, k = d.one(16, 32, 64, 128), d.int(1, 20), 2 * d.int(1, 80)
    given: dict[str, Any] = d.maybe(transB=1)
    return d.case(
        d.x((*d.shape(0, 2, least=1), k)), _bytes(d, n * k // 2),
        _scales(d, -(-n * k // size)), block_size=size, N=n, K=k, quant_type=d.one(0, 1),
        dtypes=TYPES, rough=4.0, **given,
    )  # fmt: skip


@draws(f"{MS}GatherBlockQuantized")
def gather_block_quantized(d: Draw) -> Case:
    size, rows = d.one(16, 32), d.int(1, 6)
    signed = d.one(np.uint8, ml_dtypes.int4, ml_dtypes.uint4)
    bits = d.one(4, 8) if signed is np.uint8 else 4
    shape = [rows, *d.ints(d.int(0, 1), 1, 3), d.one(16, 24, 40, 64)]
    if signed is not np.uint8 and d.flag(0.3):
        shape[-1] += 1
    along, axis = len(shape) - 1, 0
    if signed is not np.uint8 and d.flag(0.3):
        along, axis = 0, len(shape) - 1
    blocks = [-(-s // size) if a == along else s for a, s in enumerate(shape)]
    given: dict[str, Any] = {"bits": bits} if signed is np.uint8 else {}
    zero = _codes(d, blocks, bits, signed) if d.flag() else None
    where = d.rng.integers(-shape[axis], shape[axis], d.shape(0, 2, least=1))
    return d.case(
        d.constant(_codes(d, shape, bits, signed)), d.indices(where),
        d.x(blocks, 0.01, 0.1, 0.0, closed=True), None if zero is None else d.constant(zero),
        block_size=size, quantize_axis=along, gather_axis=axis, dtypes=TYPES, rough=4.0, **given,
    )  # fmt: skip


def _codes(d: Draw, shape: list[int], bits: int, kind: Any) -> Array:
    if kind is np.uint8:
        return d.rng.integers(0, 256, (*shape[:-1], -(-shape[-1] * bits // 8))).astype(np.uint8)
    return d.rng.integers(-8 if kind is ml_dtypes.int4 else 0, 8, shape).astype(kind)
