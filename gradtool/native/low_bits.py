"""Products with matrices of few bits, whose panels are decoded as they are packed."""

from __future__ import annotations

from gradtool.native import slots
from gradtool.native.call import Array, Call, Signature
from gradtool.native.gemm import product_floats

PRODUCT = Signature(
    "coded_product",
    "x codes scale zeros offset groups table bias y work",
    "m rows columns blocks block bits turned slots",
    "alpha beta",
)


def work(m: int, n: int, k: int) -> int:
    """Bytes of workspace."""
    return 4 * product_floats(m, n, k)


def product(
    x: Array, codes: Array, scale: Array, y: Array, work: Array, *, bits: int, block: int,
    turned: bool = True, zero: Array | None = None, groups: Array | None = None,
    table: Array | None = None, bias: Array | None = None, alpha: float = 1.0, beta: float = 0.0,
) -> Call:  # fmt: skip
    """`y = alpha · x Wᵀ + beta · y + bias`, or not `turned` x W, of W `[rows, columns]`.

    Codes are `[rows, blocks, block · bits / 8]`, scale `[rows, blocks]`, zero the same in floats or
    bytes packed as codes are, groups `[columns]` of int32, a table 16 floats; x and y are rows.
    With `beta` 0, y is written and never read.
    """
    m, columns = x.size // x.shape[-1], (x if turned else y).shape[-1]
    in_bytes = zero is not None and zero.dtype.kind == "u"
    return PRODUCT.bind(
        x=x, codes=codes, scale=scale, zeros=zero if in_bytes else None,
        offset=None if in_bytes else zero, groups=groups, table=table, bias=bias, y=y, work=work,
        m=m, rows=codes.shape[0], columns=columns, blocks=codes.shape[1], block=block, bits=bits,
        turned=int(turned), slots=slots(m * codes.shape[0] * columns), alpha=alpha, beta=beta,
    )  # fmt: skip
