"""Operators that only move elements, of any type and however they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import strided
from gradtool.operators.slicing import extents
from gradtool.ops.native import Bound, in_turn, native
from gradtool.ops.shape.kernel import pieces, split_sizes
from gradtool.ops.shape.kernel_views import along, slices
from gradtool.ops.shared.image_layouts import Laid
from gradtool.ops.shared.types import Array, Arrays

Moves = Iterator[tuple[Array, Array]]  # where elements go, and where they come from
SIZES = (1, 2, 4, 8)  # bytes of an element


def _moves(spec: Spec) -> bool:
    plain = spec.dtype.kind in "biuf" and spec.dtype.itemsize in SIZES
    return plain and len(spec.shape) <= strided.AXES and 0 not in spec.shape


def _fits(moved: int | None, *inputs: Any, out: Arrays, **_: Any) -> bool:
    """Whether `moved` inputs are arrays to be moved, and the others are known now."""
    arrays, known = inputs[:moved], inputs[moved or len(inputs) :]
    return (
        all(isinstance(x, Spec) and _moves(x) for x in arrays)
        and all(k is None or isinstance(k, np.ndarray) for k in known)
        and all(y is None or _moves(y) for y in out)
    )


def _fits_rows(moved: int | None, *inputs: Any, out: Arrays, **given: Any) -> bool:
    """The same of elements counted in rows."""
    plain = not any(isinstance(x, Laid) for x in (inputs[0], *out))
    return plain and _fits(moved, *inputs, out=out, **given)


def _bind(moves: Callable[..., Moves], *inputs: Array, out: Arrays, work: Arrays,
          **given: Any) -> Bound:  # fmt: skip
    return in_turn(*(strided.copy(x, y) for y, x in moves(*inputs, out=out, **given) if y.size))


def _reshape(x: Array, *_known: Array | None, out: Arrays, **_: Any) -> Moves:
    yield out[0].reshape(x.shape), x


def _transpose(x: Array, *, out: Arrays, perm: list[int] | None = None) -> Moves:
    yield out[0], x.transpose(perm)


def _expand(x: Array, _shape: Array, *, out: Arrays) -> Moves:
    yield out[0], x


def _slice(
    x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None, *,
    out: Arrays,
) -> Moves:  # fmt: skip
    yield out[0], x[slices(extents(x.shape, starts, ends, axes, steps))]


def _slice_grad(
    dy: Array, _shape: Array, starts: Array, ends: Array, axes: Array | None = None,
    steps: Array | None = None, *, out: Arrays,
) -> Moves:  # fmt: skip
    dx = out[0]
    yield dx, np.zeros((), dx.dtype)
    yield dx[slices(extents(dx.shape, starts, ends, axes, steps))], dy


def _split(
    x: Array, sizes: Array | None = None, *, out: Arrays, axis: int = 0,
    num_outputs: int | None = None,
) -> Moves:  # fmt: skip
    axis %= x.ndim
    for y, piece in zip(out, pieces(split_sizes(x.shape[axis], sizes, len(out))), strict=True):
        if y is not None:
            yield y, x[along(axis, piece)]


def _concat(*inputs: Array, out: Arrays, axis: int) -> Moves:
    axis %= out[0].ndim
    for x, piece in zip(inputs, pieces([x.shape[axis] for x in inputs]), strict=True):
        yield out[0][along(axis, piece)], x


def _same(x: Array, *, out: Arrays) -> Moves:
    yield out[0], x


def _fits_like(x: Spec, *, out: Arrays) -> bool:
    """Whether it has the type already."""
    return x.dtype == out[0].dtype and _fits(1, x, out=out)


def _as_like(x: Array, _like: Array, *, out: Arrays, **_: Any) -> Moves:
    yield out[0], x


native("CastLike", fits=_fits_like, layouts="any", strided=True)(partial(_bind, _as_like))
# By operator: how many inputs are moved (None: all), and what goes where.
for _op, _moved, _made in (
    ("Transpose", 1, _transpose), ("Expand", 1, _expand), ("Slice", 1, _slice),
    ("ai.gradtool::SliceGrad", 1, _slice_grad), ("Split", 1, _split), ("Concat", None, _concat),
    ("Identity", 1, _same),
):  # fmt: skip
    native(_op, fits=partial(_fits, _moved), layouts="any", strided=True)(partial(_bind, _made))
for _op in ("Reshape", "Squeeze", "Unsqueeze", "Flatten"):
    native(_op, fits=partial(_fits_rows, 1), strided=True)(partial(_bind, _reshape))
