"""Layer and root-mean-square normalisation, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.native import layer_norm as library
from gradtool.ops.native import Bound, are_floats, native, room
from gradtool.ops.shared.types import Array, Arrays

Outputs = Sequence[Spec | None]


def _fits_layer(
    x: Spec, scale: Spec, *rest: Spec | None, out: Outputs, axis: int = -1, **_: Any
) -> bool:
    """Parameters have all the normalised axes."""
    axis %= max(1, len(x.shape))
    whole = all(p is None or p.shape == x.shape[axis:] for p in (scale, *_parameters(rest)))
    return are_floats(x, scale, *rest, *out) and whole and 0 not in x.shape


def _parameters(rest: Sequence[Spec | None]) -> Sequence[Spec | None]:
    """The bias, of a forward pass: gradients have other operands there."""
    return rest if len(rest) == 1 else ()


@native("LayerNormalization", fits=_fits_layer, since=17)
def layer(
    x: Array, scale: Array, bias: Array | None = None, *, out: Arrays, work: Arrays,
    axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
) -> Bound:  # fmt: skip
    """`(y, mean, 1/std)`."""
    y, mean, rstd = (*out, None, None)[:3]
    return library.layer_norm(x, scale, bias, y, mean, rstd, axis=axis, epsilon=epsilon)


def _fits_rms(x: Spec, scale: Spec, *, out: Outputs, axis: int = -1) -> bool:
    return _fits_layer(x, scale, out=out, axis=axis)


@native("RMSNormalization", fits=_fits_rms, since=23)
def root_mean_square(
    x: Array, scale: Array, *, out: Arrays, work: Arrays, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Bound:  # fmt: skip
    """`y = x / sqrt(mean(x²) + epsilon) · scale`."""
    return library.layer_norm(
        x, scale, None, out[0], None, None, root=True, axis=axis, epsilon=epsilon
    )


def _layer_work(x: Spec, *, axis: int = -1) -> list[Spec]:
    return room(library.layer_work(x.shape, axis))


@native("ai.gradtool::LayerNormalizationGrad", fits=_fits_layer, work=_layer_work)
def layer_grad(
    x: Array, scale: Array, mean: Array | None, rstd: Array | None, dy: Array, *,
    out: Arrays, work: Arrays, axis: int, epsilon: float,
) -> Bound:  # fmt: skip
    """`(dx, dscale, dbias)`."""
    dx, dscale, dbias = (*out, None, None)[:3]
    return library.layer_norm_grad(
        x, scale, mean, rstd, dy, dx, dscale, dbias, work[0], axis=axis, epsilon=epsilon
    )


def _fits_rms_grad(x: Spec, scale: Spec, dy: Spec, *, out: Outputs, axis: int) -> bool:
    return are_floats(dy) and _fits_layer(x, scale, out=out, axis=axis)


@native("ai.gradtool::RMSNormalizationGrad", fits=_fits_rms_grad, work=_layer_work)
def root_mean_square_grad(
    x: Array, scale: Array, dy: Array, *, out: Arrays, work: Arrays, axis: int, epsilon: float
) -> Bound:
    """`(dx, dscale)`."""
    dx, dscale = (*out, None)[:2]
    return library.layer_norm_grad(
        x, scale, None, None, dy, dx, dscale, None, work[0], root=True, axis=axis, epsilon=epsilon
    )
