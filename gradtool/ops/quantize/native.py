"""Products with matrices of few bits by the library, which decodes a panel as it packs it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import low_bits as library
from gradtool.operators.low_bits import BITS, table
from gradtool.ops.native import Bound, are_floats, native, room
from gradtool.ops.shared.types import Array, Arrays, Specs

MOST = 4  # bits of a code of a table
ALIGNED = 16  # codes of the smallest block whose vectors stay within it
FLOAT = np.dtype(np.float32)


def fits_matrix(
    codes: Spec, scale: Spec, zero: Spec | None = None, groups: Spec | None = None, *,
    bits: int, block_size: int, size: int, values: str = "",
) -> bool:  # fmt: skip
    """Whether the library has a kernel for a matrix of these types and sizes."""
    in_bytes = zero is not None and zero.dtype == np.uint8
    if not are_floats(scale, None if in_bytes else zero) or codes.dtype != np.uint8:
        return False
    if bits not in BITS or (values and bits != MOST) or block_size % ALIGNED or block_size < 1:
        return False
    rows, blocks = codes.shape[0], -(-size // block_size)
    pairs = (
        (codes, (rows, blocks, block_size * bits // 8)), (scale, (rows, blocks)),
        (zero, (rows, -(-blocks * bits // 8) if in_bytes else blocks)), (groups, (size,)),
    )  # fmt: skip
    known = groups is None or groups.dtype == np.int32
    whole = all(spec is None or spec.shape == shape for spec, shape in pairs)
    return known and whole and 0 not in codes.shape


def _fits(
    x: Spec, codes: Spec, scale: Spec, *more: Spec | None, out: Specs, size: int, turned: int = 1,
    **said: Any,
) -> bool:  # fmt: skip
    sizes = (codes.shape[0], size)
    shapes = [(*x.shape[:-1], width) for width in (sizes[turned], sizes[1 - turned])]
    whole = [x.shape, out[0].shape] == shapes and 0 not in x.shape
    return whole and are_floats(x, *out) and fits_matrix(codes, scale, *more, size=size, **said)


def _work(x: Spec, *, out: Specs) -> list[Spec]:
    n, k = out[0].shape[-1], x.shape[-1]
    return room(library.work(math.prod(x.shape[:-1]), n, k))


@native("ai.gradtool::QuantizedMatMul", fits=_fits, work=_work)
def quantized_matmul(
    x: Array, codes: Array, scale: Array, zero: Array | None = None, groups: Array | None = None,
    *, out: Arrays, work: Arrays, bits: int, block_size: int, size: int, turned: int = 1,
    values: str = "",
) -> Bound:  # fmt: skip
    """`y = x Wᵀ` (not `turned`: `x W`) of a matrix W of few bits."""
    del size
    known = table(values, FLOAT) if values else None
    return library.product(
        x, codes, scale, out[0], work[0], bits=bits, block=block_size, turned=bool(turned),
        zero=zero, groups=groups, table=known,
    )  # fmt: skip
