"""Batch normalisation and its gradient, of images in either layout."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.graph.specs import Spec
from gradtool.native import batch_norm as library
from gradtool.ops.native import Bound, are_floats, native, room
from gradtool.ops.shared.image_layouts import Laid, is_last, lying
from gradtool.ops.shared.types import Array, Arrays, Specs

Outputs = Sequence[Spec | None]


def _fits(*specs: Spec | None, out: Specs) -> bool:
    x = specs[0]
    return are_floats(*specs, *out) and x is not None and len(x.shape) > 1 and 0 not in x.shape


def _work(x: Spec) -> list[Spec]:
    if isinstance(x, Laid):
        return room(library.work(x.lying, last=True))
    return room(library.work(x.shape, last=False))


@native("ai.gradtool::BatchNormalizationTraining", fits=_fits, work=_work, layouts="channels")
def by_the_batch(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *,
    out: Arrays, work: Arrays, epsilon: float, momentum: float,
) -> Bound:  # fmt: skip
    """`(y, mean, variance, saved mean, saved 1/std)`, by the statistics of the batch."""
    y, new_mean, new_variance, saved_mean, saved_rstd = (*out, *[None] * 5)[:5]
    return library.batch_norm(
        lying(x), scale, bias, mean, variance, lying(y), new_mean, new_variance, saved_mean,
        saved_rstd, work[0], training=True, last=is_last(x), epsilon=epsilon, momentum=momentum,
    )  # fmt: skip


@native("BatchNormalization", fits=_fits, work=_work, since=9, layouts="channels")
def batch_normalization(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, out: Arrays,
    work: Arrays, epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
) -> Bound:  # fmt: skip
    """Normalise by running statistics, or in training by the batch's, which move the former."""
    y, new_mean, new_variance = (*out, None, None)[:3]
    return library.batch_norm(
        lying(x), scale, bias, mean, variance, lying(y), new_mean, new_variance, None, None,
        work[0], training=bool(training_mode), last=is_last(x), epsilon=epsilon,
        momentum=momentum,
    )  # fmt: skip


@native("ai.gradtool::BatchNormalizationGrad", fits=_fits, work=_work, layouts="channels")
def gradient(
    x: Array, scale: Array, mean: Array | None, rstd: Array | None, dy: Array, *,
    out: Arrays, work: Arrays, epsilon: float,
) -> Bound:  # fmt: skip
    """`(dx, dscale, dbias)` by the statistics of the batch."""
    dx, dscale, dbias = (*out, None, None)[:3]
    return library.batch_norm_grad(
        lying(x), scale, mean, rstd, lying(dy), lying(dx), dscale, dbias, work[0],
        last=is_last(x), epsilon=epsilon,
    )  # fmt: skip


@native("ai.gradtool::BatchNormalizationGradScale", fits=_fits, work=_work, layouts="channels")
def gradient_by_the_scale(
    x: Array, mean: Array, rstd: Array, dy: Array, *, out: Arrays, work: Arrays
) -> Bound:
    """`Σ dy · (x - mean) · rstd`, where the statistics are given."""
    return library.batch_norm_grad(
        lying(x), None, mean, rstd, lying(dy), None, out[0], None, work[0], last=is_last(x)
    )
