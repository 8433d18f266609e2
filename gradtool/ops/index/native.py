"""Rows of a table by their numbers, and the table's gradient."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import embedding as library
from gradtool.ops.index.kernel_accumulate import normalised
from gradtool.ops.native import Bound, are_floats, in_turn, native
from gradtool.ops.shared.types import Array, Arrays, Specs

INT64 = np.dtype(np.int64)


def _is_outermost(shape: tuple[int, ...], axis: int) -> bool:
    return math.prod(shape[: axis % len(shape)]) == 1


def _work(_first: Spec, indices: Spec) -> list[Spec]:
    return [Spec(indices.shape, INT64), Spec((1,), INT64)]


def _fits(x: Spec, *, out: Specs, axis: int = 0) -> bool:
    return are_floats(x, *out) and 0 not in out[0].shape and _is_outermost(x.shape, axis)


@native("Gather", fits=_fits, work=_work)
def gather(x: Array, indices: Array, *, out: Arrays, work: Arrays, axis: int = 0) -> Bound:
    """`y[i] = x[indices[i]]` along the outermost axis.

    Raises, when it runs:
        IndexError: there is no such row.
    """
    rows, wrong = work
    table = x.reshape(x.shape[axis % x.ndim :])
    return in_turn(
        partial(normalised, np, indices, len(table), rows),
        library.gather(table, rows, out[0], wrong),
    )


def _fits_grad(dy: Spec, *, out: Specs, axis: int = 0) -> bool:
    floats = are_floats(dy, *out) and 0 not in dy.shape and 0 not in out[0].shape
    return floats and _is_outermost(out[0].shape, axis)


@native("ai.gradtool::GatherGrad", fits=_fits_grad, work=_work)
def gather_grad(
    dy: Array, indices: Array, shape: Any, *, out: Arrays, work: Arrays, axis: int = 0
) -> Bound:
    """Rows of dy added, in order, to the rows of zeros that they were read from."""
    rows, wrong = work
    table = out[0].reshape(out[0].shape[axis % out[0].ndim :])
    return in_turn(
        partial(normalised, np, indices, len(table), rows), library.gradient(dy, rows, table, wrong)
    )
