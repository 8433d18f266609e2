"""Group and instance normalisation and their gradients, of images in either layout."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.graph.specs import Spec
from gradtool.native import group_norm as library
from gradtool.ops.native import Bound, are_floats, native, room
from gradtool.ops.shared.image_layouts import Laid, is_last, lying
from gradtool.ops.shared.types import Array, Arrays

Outputs = Sequence[Spec | None]


def _fits(*specs: Spec | None, out: Outputs) -> bool:
    return are_floats(*specs, *out) and specs[0] is not None and 0 not in specs[0].shape


def _work(x: Spec) -> list[Spec]:
    if isinstance(x, Laid):
        return room(library.work(x.lying, last=True))
    return []


def _grad_work(x: Spec) -> list[Spec]:
    if isinstance(x, Laid):
        return room(library.work(x.lying, last=True))
    return room(library.work(x.shape))


@native("GroupNormalization", fits=_fits, work=_work, layouts="channels")
def groups(
    x: Array, scale: Array, bias: Array, *, out: Arrays, work: Arrays, num_groups: int,
    epsilon: float = 1e-5, stash_type: int = 1,
) -> Bound:  # fmt: skip
    """Each group of channels of each image by itself; scale and bias per channel or group."""
    spare = work[0] if work else None
    return library.group_norm(
        lying(x), scale, bias, lying(out[0]), spare, groups=num_groups, last=is_last(x),
        epsilon=epsilon,
    )  # fmt: skip


@native("InstanceNormalization", fits=_fits, work=_work, layouts="channels")
def instances(
    x: Array, scale: Array, bias: Array, *, out: Arrays, work: Arrays, epsilon: float = 1e-5
) -> Bound:
    """Each channel of each image by itself."""
    return groups(x, scale, bias, out=out, work=work, num_groups=x.shape[1], epsilon=epsilon)


@native("ai.gradtool::GroupNormalizationGrad", fits=_fits, work=_grad_work, layouts="channels")
def gradient(
    x: Array, scale: Array, dy: Array, *, out: Arrays, work: Arrays, num_groups: int,
    epsilon: float,
) -> Bound:  # fmt: skip
    """`(dx, dscale, dbias)`; scale and bias are per channel."""
    dx, dscale, dbias = (*out, None, None)[:3]
    return library.group_norm_grad(
        lying(x), scale, lying(dy), lying(dx), dscale, dbias, work[0], groups=num_groups,
        last=is_last(x), epsilon=epsilon,
    )  # fmt: skip
