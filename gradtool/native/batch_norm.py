"""Batch normalisation with a residual and ReLU behind it, channels first or last."""

from __future__ import annotations

import math

from gradtool.native import SLOTS
from gradtool.native.call import Array, Call, Signature

BATCH_NORM = Signature(
    "batch_norm",
    "x scale bias mean variance residual y new_mean new_variance saved_mean saved_rstd work",
    "images channels pixels last relu training slots",
    "epsilon momentum",
)
BATCH_NORM_GRAD = Signature(
    "batch_norm_grad",
    "x scale mean rstd dy y dx dscale dbias dresidual work",
    "images channels pixels last slots",
    "epsilon",
)
PARTS, LEAST = 32, 4096  # of native/kernels/channels.h


def work(shape: tuple[int, ...], *, last: bool = False) -> int:
    """Bytes of workspace of either kernel, for x of `shape`."""
    size = sizes(shape, last=last)
    rows, channels = size["images"] * size["pixels"], size["channels"]
    room = -(-channels // 16) * 16
    part = max(-(-rows // PARTS), -(-LEAST // max(channels, 1)))
    return 4 * room * (5 + 2 * (-(-rows // part) + SLOTS) * size["last"])


def sizes(shape: tuple[int, ...], *, last: bool = False) -> dict[str, int]:
    """Images, channels and pixels; one pixel per image is both, and runs as channels last."""
    channels = shape[-1 if last else 1]
    pixels = math.prod(shape[1:-1] if last else shape[2:])
    rows = int(last or pixels == 1)
    return {"images": shape[0], "channels": channels, "pixels": pixels, "last": rows}


def batch_norm(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, y: Array | None,
    new_mean: Array | None, new_variance: Array | None, saved_mean: Array | None,
    saved_rstd: Array | None, work: Array, *, residual: Array | None = None, relu: bool = False,
    training: bool = False, last: bool = False, epsilon: float = 1e-05, momentum: float = 0.9,
) -> Call:  # fmt: skip
    """`y = relu((x - mean) · rstd · scale + bias + residual)`, by the batch if `training`.

    The running statistics become `momentum · old + (1 - momentum) · those of the batch`; without
    training they are used, and none are written but the saved ones.
    """
    return BATCH_NORM.bind(
        x=x, scale=scale, bias=bias, mean=mean, variance=variance, residual=residual, y=y,
        new_mean=new_mean, new_variance=new_variance, saved_mean=saved_mean, saved_rstd=saved_rstd,
        work=work, relu=int(relu), training=int(training), epsilon=epsilon, momentum=momentum,
        **sizes(x.shape, last=last),
    )  # fmt: skip


def batch_norm_grad(
    x: Array, scale: Array | None, mean: Array | None, rstd: Array | None, dy: Array,
    dx: Array | None, dscale: Array | None, dbias: Array | None, work: Array, *,
    y: Array | None = None, dresidual: Array | None = None, last: bool = False,
    epsilon: float = 1e-05,
) -> Call:  # fmt: skip
    """Gradients by x, scale, bias and residual; `y` is the result where ReLU followed.

    `mean` and `rstd` are the saved ones, or None to compute them again.
    """
    return BATCH_NORM_GRAD.bind(
        x=x, scale=scale, mean=mean, rstd=rstd, dy=dy, y=y, dx=dx, dscale=dscale, dbias=dbias,
        dresidual=dresidual, work=work, epsilon=epsilon, **sizes(x.shape, last=last),
    )  # fmt: skip
