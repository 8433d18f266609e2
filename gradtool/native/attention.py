"""Scaled dot product attention by blocks, and its gradients: the matrix of scores never exists.

Operands are `[B, H, S, D]`, or `[B, S, H·D]`; their meaning is in
`gradtool.ops.attention.kernel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from gradtool.native import slots
from gradtool.native.call import Array, Call, Signature
from gradtool.native.gemm import SPARE, WIDEST
from gradtool.native.mask_gradients import Shaped, Wanted, whole

SIZES = "batch groups heads queries keys size value_size"
STEPS = " ".join(
    f"{name}_{step}" for name in ("q", "k", "v", "y", "lse") for step in ("batch", "head", "row")
)
ATTENTION = Signature(
    "attention",
    "q k v masks y lse work",
    f"{SIZES} {STEPS} mask_count causal safe slots",
    "scale fill",
    ("masks",),
)
ATTENTION_GRAD = Signature(
    "attention_grad",
    "q k v lse dy dlse masks dmasks dq dk dv work",
    f"{SIZES} {STEPS} mask_count causal members member_step class_step parts slots",
    "scale fill",
    ("masks", "dmasks"),
)
ROWS, STRIP, KEYS = 256, 56, 256  # of native/kernels/attention.c
SCORES, MOST = 32768, 224  # of native/kernels/attention_grad.c
WHOLE = 16  # floats: whole vectors for every instruction set


class Shape(Protocol):
    """Sizes and options, as in `gradtool.operators.attention.Shape`."""

    @property
    def batch(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def queries(self) -> int: ...
    @property
    def keys(self) -> int: ...
    @property
    def past(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def value_size(self) -> int: ...
    @property
    def scale(self) -> float: ...
    @property
    def causal(self) -> bool: ...
    @property
    def softcap(self) -> float: ...
    @property
    def window(self) -> tuple[int, int]: ...


def panel_floats(depth: int, columns: int) -> int:
    """Floats of packed panels of a matrix."""
    return depth * (columns + WIDEST) + SPARE


def places_floats(depth: int, columns: int) -> int:
    """The same of a matrix read in place, none if its rows are whole vectors everywhere."""
    return panel_floats(depth, columns) if columns % WHOLE else 0


def _slots(n: Shape) -> int:
    pairs = n.batch * n.groups * n.heads * n.queries * n.keys
    return slots(pairs * (n.size + n.value_size))


def work(n: Shape) -> int:
    """Bytes of workspace of the forward pass."""
    rows, keys = min(ROWS, max(n.queries, 1)), min(KEYS, n.keys)
    panels = panel_floats(n.size, keys) + places_floats(keys, n.value_size)
    return 4 * _slots(n) * (STRIP * keys + 2 * rows + panels)


def grad_work(
    n: Shape, masks: Sequence[Shaped] = (), of: Sequence[int] = (),
    dmasks: Sequence[Shaped | None] = (),
) -> int:  # fmt: skip
    """Bytes of workspace of the gradients; `dmasks` are those of the masks `of`."""
    return 4 * (_grad_floats(n) + Wanted.of(n, masks, of, dmasks, _slots(n)).floats)


def _grad_floats(n: Shape) -> int:
    """Floats of all slots."""
    rows = max(1, SCORES // max(n.keys, 1) // STRIP) * STRIP
    rows = min(MOST, rows, max(n.queries, 1))
    t, d, e = n.keys, n.size, n.value_size
    lines = panel_floats(d, t) + panel_floats(e, t)
    places = places_floats(t, d) + places_floats(rows, d) + places_floats(rows, e)
    return _slots(n) * (2 * rows * t + lines + places)


def _steps(name: str, shape: Sequence[int], heads: int) -> dict[str, int]:
    """Floats between batches, heads and rows."""
    if len(shape) == 4:
        steps = (shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3])
    else:
        steps = (shape[1] * shape[2], shape[2] // heads, shape[2])
    return {f"{name}_{step}": n for step, n in zip(("batch", "head", "row"), steps, strict=True)}


def _masks(masks: Sequence[Array]) -> Array:
    """The table of `struct mask`: address, whether boolean, steps of batch, head, row, column."""
    found = []
    for mask in masks:
        if mask.dtype not in (np.bool_, np.float32):
            raise TypeError(f"a mask of {mask.dtype}: bool and float32 are known")
        shape = whole(mask.shape)
        apart = (*np.cumprod((1, *shape[:0:-1]))[::-1],)
        steps = [0 if n == 1 else int(step) for n, step in zip(shape, apart, strict=True)]
        found.append((mask.ctypes.data, int(mask.dtype == np.bool_), *steps))
    return np.array(found, np.int64).reshape(-1, 6)


def _check_gradient(mask: Array, dmask: Array | None) -> None:
    """Refuse an array other than a mask's gradient, or of another layout."""
    if mask.dtype == np.bool_:
        raise TypeError("a boolean mask has no gradient")
    if dmask is None:
        return
    if dmask.shape != mask.shape or dmask.dtype != mask.dtype or not dmask.flags.c_contiguous:
        raise TypeError("the gradient of a mask is not contiguous, or not of its shape and type")


def _values(
    n: Shape, q: Array, k: Array, v: Array, y: Sequence[int], lse: Sequence[int],
    masks: Sequence[Array], fill: float,
) -> dict[str, Any]:  # fmt: skip
    if n.softcap or n.past or n.window != (-1, -1):
        raise ValueError("no soft cap, window or past keys here")
    if not all(mask.flags.c_contiguous for mask in masks):
        raise TypeError("a mask is not contiguous")
    heads = n.groups * n.heads
    return {
        "q": q, "k": k, "v": v, "masks": _masks(masks), "mask_count": len(masks), "fill": fill,
        "batch": n.batch, "groups": n.groups, "heads": n.heads, "queries": n.queries,
        "keys": n.keys, "size": n.size, "value_size": n.value_size, "causal": int(n.causal),
        "scale": n.scale, "slots": _slots(n), **_steps("q", q.shape, heads),
        **_steps("k", k.shape, n.groups), **_steps("v", v.shape, n.groups),
        **_steps("y", y, heads), **_steps("lse", lse, heads),
    }  # fmt: skip


def _like(q: Array, n: Shape, size: int) -> tuple[int, ...]:
    """The shape of rows of `size` numbers for each query."""
    heads = n.groups * n.heads
    if q.ndim == 4:
        return (n.batch, heads, n.queries, size)
    return (n.batch, n.queries, heads * size)


def attention(
    n: Shape, q: Array, k: Array, v: Array, masks: Sequence[Array], y: Array | None,
    lse: Array | None, work: Array, *, fill: float = -np.inf, safe: int = 0,
) -> Call:  # fmt: skip
    """`y = p v` and `lse = log Σ exp s`, with `s = masked(q kᵀ · scale)` and `p = exp(s - lse)`."""
    values = _values(n, q, k, v, _like(q, n, n.value_size), _like(q, n, 1), masks, fill)
    found = ATTENTION.bind(y=y, lse=lse, work=work, safe=int(safe), **values)
    found.operands = tuple(masks)
    return found


def attention_grad(
    n: Shape, q: Array, k: Array, v: Array, lse: Array, dy: Array, dlse: Array | None,
    masks: Sequence[Array], dq: Array | None, dk: Array | None, dv: Array | None, work: Array, *,
    of: Sequence[int] = (), dmasks: Sequence[Array | None] = (), fill: float = -np.inf,
) -> Call:  # fmt: skip
    """Gradients by q, k, v and the masks `of`.

    Of forward only `lse` is read, which tells the effect of `safe`: where that was 0, rows that see
    nothing make NaN.
    """
    values = _values(n, q, k, v, _like(q, n, n.value_size), _like(q, n, 1), masks, fill)
    wanted = Wanted.of(n, masks, of, dmasks, _slots(n))
    for i, dmask in zip(of, dmasks, strict=False):
        _check_gradient(masks[i], dmask)
    found = ATTENTION_GRAD.bind(
        lse=lse, dy=dy, dlse=dlse, dq=dq, dk=dk, dv=dv, work=work,
        dmasks=wanted.table(_grad_floats(n)), **vars(wanted.cut), **values,
    )  # fmt: skip
    found.operands = (*masks, *dmasks)
    return found
