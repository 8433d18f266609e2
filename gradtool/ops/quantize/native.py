"""Products with matrices of few bits by the library, which decodes a panel as it packs it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import low_bits as library
from gradtool.operators.low_bits import table
from gradtool.ops.native import Bound, are_floats, native, room
from gradtool.ops.shared.types import Array, Arrays, Specs

ALIGNED = 16  # codes of the smallest block whose vectors stay within it
FLOAT = np.dtype(np.float32)


def _fits(
    x: Spec, codes: Spec, scale: Spec, zero: Spec | None = None, groups: Spec | None = None, *,
    out: Specs, block_size: int, **_: Any,
) -> bool:  # fmt: skip
    in_bytes = zero is not None and zero.dtype == np.uint8
    floats = are_floats(x, scale, None if in_bytes else zero, *out)
    known = groups is None or groups.dtype == np.int32
    whole = block_size % ALIGNED == 0 and 0 not in (*x.shape, *codes.shape, *out[0].shape)
    return floats and known and whole


def _work(x: Spec, *_matrix: Spec | None, out: Specs, **_: Any) -> list[Spec]:
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
