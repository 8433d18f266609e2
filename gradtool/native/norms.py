"""Layer, root-mean-square, group and instance normalisation, and their gradients."""

from __future__ import annotations

import math

from gradtool.native import SLOTS
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
GROUP_SIZES = "images channels pixels groups scales"
GROUP_NORM = Signature(
    "group_norm", "x scale bias residual y", f"{GROUP_SIZES} relu slots", "epsilon"
)
GROUP_NORM_GRAD = Signature(
    "group_norm_grad",
    "x scale dy y dx dscale dbias dresidual work",
    f"{GROUP_SIZES} slots",
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
    root: bool = False, axis: int = -1, epsilon: float = 1e-5, instructions: str | None = None,
) -> Call:  # fmt: skip
    """`y = (s - mean) · rstd · scale + bias` of `s = x + residual`, which `total` takes.

    Rows are of the axes from `axis` on, which scale and bias have.  With `root` the mean is 0.
    A residual needs y or `total`.
    """
    axis %= x.ndim
    return LAYER_NORM.bind(
        instructions, x=x, residual=residual, scale=scale, bias=bias, y=y, sum=total, mean=mean,
        rstd=rstd, rows=math.prod(x.shape[:axis]), n=math.prod(x.shape[axis:]), root=int(root),
        slots=SLOTS, epsilon=epsilon,
    )  # fmt: skip


def layer_norm_grad(
    x: Array, scale: Array, mean: Array | None, rstd: Array | None, dy: Array, dx: Array | None,
    dscale: Array | None, dbias: Array | None, work: Array, *, dtotal: Array | None = None,
    root: bool = False, axis: int = -1, epsilon: float = 1e-5, instructions: str | None = None,
) -> Call:  # fmt: skip
    """Gradients by x (and the residual: the same), scale and bias; `dtotal` is added to dx."""
    axis %= x.ndim
    return LAYER_NORM_GRAD.bind(
        instructions, x=x, scale=scale, mean=mean, rstd=rstd, dy=dy, dsum=dtotal, dx=dx,
        dscale=dscale, dbias=dbias, work=work, rows=math.prod(x.shape[:axis]),
        n=math.prod(x.shape[axis:]), root=int(root), slots=SLOTS, epsilon=epsilon,
    )  # fmt: skip


def group_work(shape: tuple[int, ...]) -> int:
    """Bytes of workspace of `group_norm_grad`; the forward pass has none."""
    return 8 * shape[0] * shape[1]


def _group(x: Array, scale: Array, groups: int) -> dict[str, int]:
    return {
        "images": x.shape[0], "channels": x.shape[1], "pixels": math.prod(x.shape[2:]),
        "groups": groups, "scales": scale.size, "slots": SLOTS,
    }  # fmt: skip


def group_norm(
    x: Array, scale: Array, bias: Array, y: Array, *, groups: int, residual: Array | None = None,
    relu: bool = False, epsilon: float = 1e-5, instructions: str | None = None,
) -> Call:  # fmt: skip
    """Each group of channels of each image by itself; as many groups as channels for instances.

    Scale and bias are per channel or per group.
    """
    return GROUP_NORM.bind(
        instructions, x=x, scale=scale, bias=bias, residual=residual, y=y, relu=int(relu),
        epsilon=epsilon, **_group(x, scale, groups),
    )  # fmt: skip


def group_norm_grad(
    x: Array, scale: Array, dy: Array, dx: Array | None, dscale: Array | None,
    dbias: Array | None, work: Array, *, groups: int, y: Array | None = None,
    dresidual: Array | None = None, epsilon: float = 1e-5, instructions: str | None = None,
) -> Call:  # fmt: skip
    """Gradients by x, scale, bias and residual; `y` is the result where ReLU followed."""
    return GROUP_NORM_GRAD.bind(
        instructions, x=x, scale=scale, dy=dy, y=y, dx=dx, dscale=dscale, dbias=dbias,
        dresidual=dresidual, work=work, epsilon=epsilon, **_group(x, scale, groups),
    )  # fmt: skip
