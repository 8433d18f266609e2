"""Normalisation by rows, groups or the batch, and its gradients; images in either layout."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.graph.specs import Spec
from gradtool.native import batch_norm, group_norm, layer_norm
from gradtool.ops.native import Bound, are_floats, native, room
from gradtool.ops.shared.image_layouts import Laid, is_last, lying
from gradtool.ops.shared.types import Array, Arrays, Specs

Outputs = Sequence[Spec | None]


def _fits_layer(x: Spec, scale: Spec, *rest: Spec | None, out: Outputs, axis: int = -1) -> bool:
    """Parameters have all the normalised axes; one more is the bias, several are a gradient's."""
    axis %= max(1, len(x.shape))
    parameters = (scale, *rest) if len(rest) == 1 else (scale,)
    whole = all(p is None or p.shape == x.shape[axis:] for p in parameters)
    return are_floats(x, scale, *rest, *out) and whole and 0 not in x.shape


@native("LayerNormalization", fits=_fits_layer, since=17)
def layer(
    x: Array, scale: Array, bias: Array | None = None, *, out: Arrays, work: Arrays,
    axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
) -> Bound:  # fmt: skip
    """`(y, mean, 1/std)`."""
    y, mean, rstd = (*out, None, None)[:3]
    return layer_norm.layer_norm(x, scale, bias, y, mean, rstd, axis=axis, epsilon=epsilon)


def _fits_rms(x: Spec, scale: Spec, *, out: Outputs, axis: int = -1) -> bool:
    return _fits_layer(x, scale, out=out, axis=axis)


@native("RMSNormalization", fits=_fits_rms, since=23)
def root_mean_square(
    x: Array, scale: Array, *, out: Arrays, work: Arrays, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Bound:  # fmt: skip
    """`y = x / sqrt(mean(x²) + epsilon) · scale`."""
    return layer_norm.layer_norm(
        x, scale, None, out[0], None, None, root=True, axis=axis, epsilon=epsilon
    )


def _layer_work(x: Spec, *, axis: int = -1) -> list[Spec]:
    return room(layer_norm.layer_work(x.shape, axis))


@native("ai.gradtool::LayerNormalizationGrad", fits=_fits_layer, work=_layer_work)
def layer_grad(
    x: Array, scale: Array, mean: Array | None, rstd: Array | None, dy: Array, *,
    out: Arrays, work: Arrays, axis: int, epsilon: float,
) -> Bound:  # fmt: skip
    """`(dx, dscale, dbias)`."""
    dx, dscale, dbias = (*out, None, None)[:3]
    return layer_norm.layer_norm_grad(
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
    return layer_norm.layer_norm_grad(
        x, scale, None, None, dy, dx, dscale, None, work[0], root=True, axis=axis, epsilon=epsilon
    )


def _group_fits(*specs: Spec | None, out: Outputs) -> bool:
    return are_floats(*specs, *out) and specs[0] is not None and 0 not in specs[0].shape


def _group_work(x: Spec) -> list[Spec]:
    if isinstance(x, Laid):
        return room(group_norm.work(x.lying, last=True))
    return []


def _group_grad_work(x: Spec) -> list[Spec]:
    if isinstance(x, Laid):
        return room(group_norm.work(x.lying, last=True))
    return room(group_norm.work(x.shape))


@native("GroupNormalization", fits=_group_fits, work=_group_work, layouts="channels")
def groups(
    x: Array, scale: Array, bias: Array, *, out: Arrays, work: Arrays, num_groups: int,
    epsilon: float = 1e-5, stash_type: int = 1,
) -> Bound:  # fmt: skip
    """Each group of channels of each image by itself; scale and bias per channel or group."""
    spare = work[0] if work else None
    return group_norm.group_norm(
        lying(x), scale, bias, lying(out[0]), spare, groups=num_groups, last=is_last(x),
        epsilon=epsilon,
    )  # fmt: skip


@native("InstanceNormalization", fits=_group_fits, work=_group_work, layouts="channels")
def instances(
    x: Array, scale: Array, bias: Array, *, out: Arrays, work: Arrays, epsilon: float = 1e-5
) -> Bound:
    """Each channel of each image by itself."""
    return groups(x, scale, bias, out=out, work=work, num_groups=x.shape[1], epsilon=epsilon)


@native(
    "ai.gradtool::GroupNormalizationGrad",
    fits=_group_fits,
    work=_group_grad_work,
    layouts="channels",
)
def group_gradient(
    x: Array, scale: Array, dy: Array, *, out: Arrays, work: Arrays, num_groups: int,
    epsilon: float,
) -> Bound:  # fmt: skip
    """`(dx, dscale, dbias)`; scale and bias are per channel."""
    dx, dscale, dbias = (*out, None, None)[:3]
    return group_norm.group_norm_grad(
        lying(x), scale, lying(dy), lying(dx), dscale, dbias, work[0], groups=num_groups,
        last=is_last(x), epsilon=epsilon,
    )  # fmt: skip


def _batch_fits(*specs: Spec | None, out: Specs) -> bool:
    x = specs[0]
    return are_floats(*specs, *out) and x is not None and len(x.shape) > 1 and 0 not in x.shape


def _batch_work(x: Spec) -> list[Spec]:
    if isinstance(x, Laid):
        return room(batch_norm.work(x.lying, last=True))
    return room(batch_norm.work(x.shape, last=False))


@native(
    "ai.gradtool::BatchNormalizationTraining",
    fits=_batch_fits,
    work=_batch_work,
    layouts="channels",
)
def by_the_batch(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *,
    out: Arrays, work: Arrays, epsilon: float, momentum: float,
) -> Bound:  # fmt: skip
    """`(y, mean, variance, saved mean, saved 1/std)`, by the statistics of the batch."""
    y, new_mean, new_variance, saved_mean, saved_rstd = (*out, *[None] * 5)[:5]
    return batch_norm.batch_norm(
        lying(x), scale, bias, mean, variance, lying(y), new_mean, new_variance, saved_mean,
        saved_rstd, work[0], training=True, last=is_last(x), epsilon=epsilon, momentum=momentum,
    )  # fmt: skip


@native("BatchNormalization", fits=_batch_fits, work=_batch_work, since=9, layouts="channels")
def batch_normalization(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, out: Arrays,
    work: Arrays, epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
) -> Bound:  # fmt: skip
    """Normalise by running statistics, or in training by the batch's, which move the former."""
    y, new_mean, new_variance = (*out, None, None)[:3]
    return batch_norm.batch_norm(
        lying(x), scale, bias, mean, variance, lying(y), new_mean, new_variance, None, None,
        work[0], training=bool(training_mode), last=is_last(x), epsilon=epsilon,
        momentum=momentum,
    )  # fmt: skip


@native(
    "ai.gradtool::BatchNormalizationGrad", fits=_batch_fits, work=_batch_work, layouts="channels"
)
def batch_gradient(
    x: Array, scale: Array, mean: Array | None, rstd: Array | None, dy: Array, *,
    out: Arrays, work: Arrays, epsilon: float,
) -> Bound:  # fmt: skip
    """`(dx, dscale, dbias)` by the statistics of the batch."""
    dx, dscale, dbias = (*out, None, None)[:3]
    return batch_norm.batch_norm_grad(
        lying(x), scale, mean, rstd, lying(dy), lying(dx), dscale, dbias, work[0],
        last=is_last(x), epsilon=epsilon,
    )  # fmt: skip


@native(
    "ai.gradtool::BatchNormalizationGradScale",
    fits=_batch_fits,
    work=_batch_work,
    layouts="channels",
)
def gradient_by_the_scale(
    x: Array, mean: Array, rstd: Array, dy: Array, *, out: Arrays, work: Arrays
) -> Bound:
    """`Σ dy · (x - mean) · rstd`, where the statistics are given."""
    return batch_norm.batch_norm_grad(
        lying(x), None, mean, rstd, lying(dy), None, out[0], None, work[0], last=is_last(x)
    )
