"""Softmax, its logarithm and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.graph.specs import Spec
from gradtool.native import softmax as library
from gradtool.ops.native import Bound, are_floats, native
from gradtool.ops.shared.types import Array, Arrays

SINCE = 13  # softmax is over one axis from here on


def _floats(*specs: Spec | None, out: Sequence[Spec | None]) -> bool:
    return are_floats(*specs, *out) and out[0] is not None and 0 not in out[0].shape


@native("Softmax", fits=_floats, since=SINCE)
def softmax(x: Array, *, out: Arrays, work: Arrays, axis: int = -1) -> Bound:
    """`y = exp(x) / Σ exp(x)` along an axis."""
    return library.softmax(x, out[0], axis=axis)


@native("LogSoftmax", fits=_floats, since=SINCE)
def log_softmax(x: Array, *, out: Arrays, work: Arrays, axis: int = -1) -> Bound:
    """`y = x - log Σ exp(x)` along an axis."""
    return library.softmax(x, out[0], axis=axis, log=True)


@native("ai.gradtool::SoftmaxGrad", fits=_floats)
def softmax_grad(y: Array, dy: Array, *, out: Arrays, work: Arrays, axis: int) -> Bound:
    """`dx = y · (dy - Σ y · dy)`."""
    return library.softmax_grad(y, dy, out[0], axis=axis)


@native("ai.gradtool::LogSoftmaxGrad", fits=_floats)
def log_softmax_grad(y: Array, dy: Array, *, out: Arrays, work: Arrays, axis: int) -> Bound:
    """`dx = dy - exp(y) · Σ dy`."""
    return library.softmax_grad(y, dy, out[0], axis=axis, log=True)
