"""Additions of a session to a batch: the gradient of its loss, the number of its step."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.exec import feeds
from gradtool.graph.randomness import numbers_of
from gradtool.graph.stages import seed_of
from gradtool.text.words import some, suggest

Batch = Mapping[str, Any]


def scaled(model: ir.Model, batch: Batch, loss_scale: float) -> Batch:
    """A batch with the gradient of the loss in it.

    Raises:
        UsageError: the graph has no input for it, or adds to buffers; or it is not positive.
    """
    name = seed_of(model)
    if name is None or feeds.buffers(model):
        why = "the graph has no input for it" if name is None else "the graph adds to buffers"
        raise UsageError(
            f"no loss scale: {why}; make it with gradtool.grad(…, loss_seed=True) "
            "and without grad_buffers"
        )
    if not 0 < loss_scale < math.inf:
        raise UsageError(f"a loss scale is a positive number, not {loss_scale}")
    seed = feeds.takers(model)[name]
    assert seed.shape is not None and seed.dtype is not None  # noqa: PT018, S101 - as the loss
    return {**batch, name: np.full(seed.shape.numpy(), loss_scale, seed.dtype.numpy())}


def counted(model: ir.Model, batch: Batch, step: int) -> Batch:
    """A batch with the number of this step for its draws, unless it has one."""
    name = numbers_of(model).get("step")
    return {name: step, **batch} if name else batch


def matching(
    patterns: Sequence[str], names: Collection[str], what: str, others: Collection[str] = ()
) -> list[str]:
    """The names that match any of the patterns, in their own order; an exact name wins.

    A pattern that matches none of them is one of `others`.

    Raises:
        UsageError: a pattern matches nothing.
    """
    found: set[str] = set()
    for pattern in patterns:
        matched = _matched(pattern, names) or _matched(pattern, others)
        if not matched:
            hint = suggest(pattern, names) or f"; there are {some(names) or 'none'}"
            raise UsageError(f"no {what} {pattern!r}{hint}")
        found.update(matched)
    return [name for name in dict.fromkeys((*names, *others)) if name in found]


def _matched(pattern: str, names: Collection[str]) -> list[str]:
    return [pattern] if pattern in names else [n for n in names if fnmatchcase(n, pattern)]
