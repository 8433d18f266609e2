"""Layer and root-mean-square normalisation, and their gradients."""

from __future__ import annotations

import math

from gradtool.native.batch_norm import LEAST, PARTS
from gradtool.native.call import Array, Call, Signature

LAYER_NORM = Signature(
    "layer_norm", "x residual scale bias y sum mean rstd", "rows n root slots", "epsilon"
)
LAYER_NORM_GRAD = Signature(
    "layer_norm_grad",
    "x scale mean rstd dy dsum dx dscale dbias work",
    "rows n root slots",
    "epsilon",
)


def layer_work(shape: tuple[int, ...], axis: int = -1) -> int:
    """Bytes of workspace of `layer_norm_grad`; the forward pass has none."""
    axis %= len(shape)
    rows, n = math.prod(shape[:axis]), math.prod(shape[axis:])
    part = max(-(-rows // PARTS), -(-LEAST // max(n, 1)))
    return 8 * (-(-n // 16) * 16) * -(-rows // part)


def layer_norm(
    x: Array, scale: Array, bias: Array | None, y: Array | None, mean: Array | None,
    rstd: Array | None, *, residual: Array | None = None, total: Array | None = None,
    root: bool = False, axis: int = -1, epsilon: float = 1e-05,
) -> Call:  # fmt: skip
    """`y = (s - mean) · rstd · scale + bias` of `s = x + residual`, which `total` takes.

    Rows are of the axes from `axis` on, which scale and bias have.  With `root` the mean is 0.
    A residual needs y or `total`.
    """
    axis %= x.ndim
    return LAYER_NORM.bind(
        x=x, residual=residual, scale=scale, bias=bias, y=y, sum=total, mean=mean, rstd=rstd,
        rows=math.prod(x.shape[:axis]), n=math.prod(x.shape[axis:]), root=int(root),
        epsilon=epsilon,
    )  # fmt: skip


def layer_norm_grad(
    x: Array, scale: Array, mean: Array | None, rstd: Array | None, dy: Array, dx: Array | None,
    dscale: Array | None, dbias: Array | None, work: Array, *, dtotal: Array | None = None,
    root: bool = False, axis: int = -1, epsilon: float = 1e-05,
) -> Call:  # fmt: skip
    """Gradients by x (and the residual: the same), scale and bias; `dtotal` is added to dx."""
    axis %= x.ndim
    return LAYER_NORM_GRAD.bind(
        x=x, scale=scale, mean=mean, rstd=rstd, dy=dy, dsum=dtotal, dx=dx, dscale=dscale,
        dbias=dbias, work=work, rows=math.prod(x.shape[:axis]), n=math.prod(x.shape[axis:]),
        root=int(root), epsilon=epsilon,
    )  # fmt: skip
