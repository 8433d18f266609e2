"""Sends and receives of stages, as one process has them: calls to run, never written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor


@composite("StageSend")
def stage_send(
    op: Builder, x: Tensor, before: Tensor | None = None, *, to: int, slot: int
) -> Tensor:
    """`x` on its way to the stage `to` further: it lies there until it has arrived.

    `before` went through the same slot a turn ago, and has arrived by then.
    """
    return op.Identity(x)


def _received(*, shape: Sequence[int], dtype: int, of: int, slot: int) -> Outputs:
    return [(ir.Shape(shape), ir.DataType(dtype))]


@composite("StageReceive", shapes=_received)
def stage_receive(op: Builder, *, shape: Sequence[int], dtype: int, of: int, slot: int) -> Tensor:
    """The value sent by the stage `of` further; nothing but zeros where there is none."""
    zero = ir.tensor(np.zeros(1, ir.DataType(dtype).numpy()))
    return op.ConstantOfShape(list(shape), value=zero)


def _one(*_: Tensor, **__: object) -> Outputs:
    return [(ir.Shape(()), ir.DataType.BOOL)]


@composite("StageGive", shapes=_one)
def stage_give(op: Builder, x: Tensor, *, to: int, slot: int) -> Tensor:
    """Whether another stage has `x`, which no step writes over: yes, when it goes on."""
    return op.constant(np.array(True))


@composite("StageSent", shapes=_one)
def stage_sent(op: Builder, *mails: Tensor) -> Tensor:
    """Whether all sent values have arrived: yes, when it goes on."""
    return op.constant(np.array(True))
