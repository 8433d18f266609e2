"""Cotangents for the backward walk: a loss and its gradient, or a gradient per output."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import ModelError, NotDifferentiable, UsageError
from gradtool.graph.predicates import is_float
from gradtool.losses import attach as losses
from gradtool.ops.driver import require_types


def cotangents_of(
    op: Builder,
    loss: losses.Wanted | Sequence[losses.Wanted],
    labels: losses.LabelNames,
    *,
    head_grads: bool,
    seed: bool,
) -> tuple[losses.Loss, dict[ir.Value, ir.Value]]:
    """The loss and the initial gradients of the backward walk."""
    if head_grads:
        return losses.Loss(None, "head gradients of every output"), _head_inputs(op)
    try:
        chosen = losses.attach(op, loss, labels)
    except (UsageError, ModelError, NotDifferentiable):
        require_types(op.model)
        raise
    assert chosen.value is not None  # noqa: S101 - a loss that was attached has one
    head = _seed(op, chosen.value) if seed else _ones(op, chosen.value)
    return chosen, {chosen.value: head}


def _head_inputs(op: Builder) -> dict[ir.Value, ir.Value]:
    """One new input per float output, for its gradient."""
    cotangents: dict[ir.Value, ir.Value] = {}
    for value in op.graph.outputs:
        if is_float(value):
            cotangents[value] = ir.Value(
                name=op.names.fresh(f"{value.name}_grad"), shape=value.shape, type=value.type
            )
    if not cotangents:
        raise UsageError("--head-grads: no output is a float")
    op.graph.inputs.extend(cotangents.values())
    return cotangents


def _ones(op: Builder, loss: ir.Value) -> ir.Value:
    """A constant of its own, so that its readers are part of the gradient."""
    import numpy as np

    assert loss.dtype is not None and loss.shape is not None  # noqa: PT018, S101 - a loss has both
    ones = np.ones(loss.shape.numpy(), dtype=loss.dtype.numpy())
    return op.initializer(ir.Tensor(ones, name=op.names.fresh(f"{loss.name}_grad")))


def _seed(op: Builder, loss: ir.Value) -> ir.Value:
    """An input for the gradient of the loss: 1, or a loss scale."""
    made = ir.Value(name=op.names.fresh(f"{loss.name}_grad"), shape=loss.shape, type=loss.type)
    op.graph.inputs.append(made)
    return made
