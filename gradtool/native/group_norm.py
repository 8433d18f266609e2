"""Group and instance normalisation, channels first or last, and their gradients."""

from __future__ import annotations

import math

from gradtool.native import SLOTS
from gradtool.native.batch_norm import LEAST, PARTS
from gradtool.native.call import Array, Call, Signature

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
GROUP_NORM_LAST = Signature(
    "group_norm_last", "x scale bias residual y work", f"{GROUP_SIZES} relu slots", "epsilon"
)
GROUP_NORM_LAST_GRAD = Signature(
    "group_norm_last_grad",
    "x scale dy y dx dscale dbias dresidual work",
    f"{GROUP_SIZES} slots",
    "epsilon",
)


def work(shape: tuple[int, ...], *, last: bool = False) -> int:
    """Bytes of workspace of either kernel for x of `shape`; channels first, forward has none."""
    if not last:
        return 8 * shape[0] * shape[1]
    channels, pixels = shape[-1], math.prod(shape[1:-1])
    part = max(-(-pixels // PARTS), -(-LEAST // max(channels, 1)))
    return 4 * (-(-channels // 16) * 16) * (7 + 2 * (-(-pixels // part) + SLOTS))


def _sizes(x: Array, scale: Array, groups: int, *, last: bool) -> dict[str, int]:
    channels, pixels = x.shape[-1 if last else 1], x.shape[1:-1] if last else x.shape[2:]
    return {
        "images": x.shape[0], "channels": channels, "pixels": math.prod(pixels), "groups": groups,
        "scales": scale.size,
    }  # fmt: skip


def group_norm(
    x: Array, scale: Array, bias: Array, y: Array, work: Array | None, *, groups: int,
    residual: Array | None = None, relu: bool = False, last: bool = False, epsilon: float = 1e-05,
) -> Call:  # fmt: skip
    """Each group of channels of each image by itself; as many groups as channels for instances.

    Scale and bias are per channel or per group.
    """
    values = _sizes(x, scale, groups, last=last) | {"relu": int(relu)}
    operands = {"x": x, "scale": scale, "bias": bias, "residual": residual, "y": y}
    if last:
        return GROUP_NORM_LAST.bind(**operands, **values, work=work, epsilon=epsilon)
    return GROUP_NORM.bind(**operands, **values, epsilon=epsilon)


def group_norm_grad(
    x: Array, scale: Array, dy: Array, dx: Array | None, dscale: Array | None, dbias: Array | None,
    work: Array, *, groups: int, y: Array | None = None, dresidual: Array | None = None,
    last: bool = False, epsilon: float = 1e-05,
) -> Call:  # fmt: skip
    """Gradients by x, scale, bias and residual; `y` is the result where ReLU followed."""
    return (GROUP_NORM_LAST_GRAD if last else GROUP_NORM_GRAD).bind(
        x=x, scale=scale, dy=dy, y=y, dx=dx, dscale=dscale, dbias=dbias, dresidual=dresidual,
        work=work, epsilon=epsilon, **_sizes(x, scale, groups, last=last),
    )  # fmt: skip
