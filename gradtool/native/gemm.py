"""Products of matrices, batched: `c = alpha · op(a) @ op(b) + beta · c + bias`."""

from __future__ import annotations

from gradtool.native import SLOTS, slots
from gradtool.native.call import Array, Call, Signature

GEMM = Signature(
    "gemm",
    "a b bias c work",
    "batch m n k a_row b_row c_row a_step b_step c_step a_turned b_turned slots",
    "alpha beta",
)
DEPTH, WIDTH, HEIGHT = 512, 768, 56  # of the blocks of native/kernels/product.c
WIDEST, SPARE = 32, 16
SMALL = 131072  # floats


def product_floats(m: int, n: int, k: int, at_most: int = SLOTS) -> int:
    """Floats of workspace of one product of `[m, k]` and `[k, n]`, of so many slots at most."""
    depth, parts = min(k, DEPTH), min(at_most, slots(m * n * k))
    return depth * (min(n, WIDTH) + WIDEST) + parts * (depth * min(m, HEIGHT) + SPARE) + SPARE


def work(batch: int, m: int, n: int, k: int) -> int:
    """Bytes of workspace of `gemm`."""
    alone = product_floats(m, n, k, 1)
    if batch > 1 and alone <= SMALL:
        return 4 * slots(batch * m * n * k) * alone
    return 4 * product_floats(m, n, k)


def gemm(
    a: Array, b: Array, c: Array, work: Array, *, a_turned: bool = False, b_turned: bool = False,
    alpha: float = 1.0, beta: float = 0.0, bias: Array | None = None,
) -> Call:  # fmt: skip
    """Matrices of the last two axes: a `[m, k]`, b `[k, n]`, c `[m, n]`, bias `[n]`.

    A turned one is stored with its axes swapped.  All have the same batch axes before, but for an
    a or b with none, which every product shares.  With `beta` 0, c is written and never read.
    """
    m, n = c.shape[-2:]
    batch = c[..., :1, :1].size if m * n else 0
    k = a.shape[-2 if a_turned else -1]
    return GEMM.bind(
        a=a, b=b, bias=bias, c=c, work=work, batch=batch, m=m, n=n, k=k, a_row=a.shape[-1],
        b_row=b.shape[-1], c_row=n, a_step=a.shape[-1] * a.shape[-2] if a.ndim > 2 else 0,
        b_step=b.shape[-1] * b.shape[-2] if b.ndim > 2 else 0, c_step=m * n, a_turned=int(a_turned),
        b_turned=int(b_turned), slots=slots(batch * m * n * k), alpha=alpha, beta=beta,
    )  # fmt: skip
