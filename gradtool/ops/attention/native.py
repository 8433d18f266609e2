"""Attention that keeps one number per row, and its gradients; views are copied first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import attention as library
from gradtool.operators.attention import Extras, Shape, shape_of
from gradtool.ops.native import Bound, are_floats, native, room
from gradtool.ops.shared.image_layouts import Apart, Turns, apart
from gradtool.ops.shared.types import Array, Arrays

Outputs = Sequence[Spec | None]


def _is_plain(n: Shape) -> bool:
    """Whether the library has all that the node asks for."""
    return not n.softcap and not n.past and n.window == (-1, -1) and n.dtype == np.float32


def _suit(masks: Sequence[Spec]) -> bool:
    kinds = (np.dtype(bool), np.dtype(np.float32))
    return all(m.dtype in kinds and not isinstance(m, Apart) for m in masks)


def _fits(q: Spec, k: Spec, v: Spec, *masks: Spec, out: Outputs, **given: Any) -> bool:
    floats = are_floats(q, k, v, *out) and 0 not in (*q.shape, *k.shape, *v.shape)
    return floats and _suit(masks) and _is_plain(shape_of(q, k, v, **given))


def _work(q: Spec, k: Spec, v: Spec, **given: Any) -> list[Spec]:
    return room(apart(q, k, v) + library.work(shape_of(q, k, v, **given)))


@native("ai.gradtool::FusedAttention", fits=_fits, work=_work, strided=True)
def attention(
    q: Array, k: Array, v: Array, *masks: Array, out: Arrays, work: Arrays,
    fill: float = -np.inf, safe: int = 0, **given: Any,
) -> Bound:  # fmt: skip
    """`Y = p v` and `lse = log Σ exp s`."""
    n, turns = shape_of(q, k, v, **given), Turns(work)
    q, k, v = (turns.together(a) for a in (q, k, v))
    y, lse = (*out, None)[:2]
    call = library.attention(n, q, k, v, masks, y, lse, turns.rest(), fill=fill, safe=safe)
    return turns.around(call)


def _fits_grad(
    q: Spec, k: Spec, v: Spec, lse: Spec | None, dy: Spec, dlse: Spec | None = None,
    *rest: Any, out: Outputs, **given: Any,
) -> bool:  # fmt: skip
    """Whether the statistic is there, and no past, lengths or gradient of scores."""
    floats = lse is not None and are_floats(lse, dy, dlse) and not isinstance(lse, Apart)
    together = not any(isinstance(dmask, Apart) for dmask in out[3:])
    others = Extras.of(rest)
    unusual = others.dscores, others.past_k, others.past_v, others.lens
    plain = all(operand is None for operand in unusual)
    return floats and together and plain and _fits(q, k, v, *others.masks, out=out, **given)


def _grad_work(
    q: Spec, k: Spec, v: Spec, lse: Spec, dy: Spec, dlse: Spec | None = None, *rest: Any,
    out: Outputs, of: Sequence[int] = (), **given: Any,
) -> list[Spec]:  # fmt: skip
    n, masks = shape_of(q, k, v, **given), Extras.of(rest).masks
    return room(apart(q, k, v, dy, dlse) + library.grad_work(n, masks, of, out[3:]))


@native("ai.gradtool::FusedAttentionGrad", fits=_fits_grad, work=_grad_work, strided=True)
def attention_grad(
    q: Array, k: Array, v: Array, lse: Array, dy: Array, dlse: Array | None = None, *rest: Any,
    out: Arrays, work: Arrays, fill: float = -np.inf, of: Sequence[int] = (), **given: Any,
) -> Bound:  # fmt: skip
    """Gradients by q, k, v and the masks `of`."""
    n, masks, turns = shape_of(q, k, v, **given), Extras.of(rest).masks, Turns(work)
    q, k, v, dy = (turns.together(a) for a in (q, k, v, dy))
    dlse = None if dlse is None else turns.together(dlse)
    dq, dk, dv = (*out, None, None)[:3]
    call = library.attention_grad(
        n, q, k, v, lse, dy, dlse, masks, dq, dk, dv, turns.rest(), of=of, dmasks=out[3:], fill=fill
    )
    return turns.around(call)
