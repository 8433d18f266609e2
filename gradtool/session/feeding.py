"""Additions of a session to a batch: the gradient of its loss, the number of its step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.exec import feeds
from gradtool.graph.randomness import numbers_of
from gradtool.graph.stages import seed_of

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
