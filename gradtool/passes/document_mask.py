"""Attention within documents: a packed row of several of them, as rows of each alone.

Source: the block-diagonal mask of packed sequences (Krell et al. 2021, arXiv:2107.02027).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.composites import DOMAIN
from gradtool.graph.predicates import is_float
from gradtool.graph.typed import Dim, Tensor, as_tensor
from gradtool.passes._attention_operands import dims

DOCUMENTS = "documents"
_FUSED = (DOMAIN, "FusedAttention")
_PLAIN = (("", "Attention"), (DOMAIN, "ScaledAttention"))
_MASK = 3  # the slot of a mask


def separate_documents(op: Builder) -> bool:
    """Hide keys of other documents from each query of the graph; whether there is attention.

    The new input `documents` [batch, length] numbers the documents of the tokens.  It is of the
    sizes of an input of integers; attention of other sizes, and one written out in operators, stays
    as it is.

    Raises:
        UsageError: the model has an input of this name.
    """
    graph = op.graph
    known = [dims(v) for v in graph.inputs if not is_float(v) and len(dims(v)) == 2]
    found = [node for node in graph if _sizes(node) in known]
    if not found:
        return False
    if any(value.name == DOCUMENTS for value in graph.inputs):
        raise UsageError(f"the model has an input {DOCUMENTS!r}: packed rows need that name")
    sizes = _sizes(found[0])
    numbers = Tensor(
        name=op.names.fresh(DOCUMENTS), shape=ir.Shape(sizes), type=ir.TensorType(ir.DataType.INT64)
    )
    graph.inputs.append(numbers)
    with op.at(found[0], stage="forward", source="", prefix=DOCUMENTS):
        same = op.Equal(op.unsqueeze(numbers, [1, 3]), op.unsqueeze(numbers, [1, 2]))
    for node in found:
        if _sizes(node) == sizes:
            _mask(op, node, same)
    return True


def _sizes(node: ir.Node) -> Sequence[Dim]:
    """The batch and the length of self-attention; none of another node."""
    name = (node.domain, node.op_type)
    if name != _FUSED and name not in _PLAIN:
        return []
    q, k = (dims(value) if value is not None else [] for value in node.inputs[:2])
    has_past = name in _PLAIN and any(v is not None for v in node.inputs[4:])
    if len(q) not in (3, 4) or len(k) != len(q) or has_past or q[-2] != k[-2] or q[0] != k[0]:
        return []
    if len(q) == 3:
        return q[:2]
    return [q[0], q[2]]


def _mask(op: Builder, node: ir.Node, same: Tensor) -> None:
    """Lay a mask [batch, 1, length, length] on top of those of a node."""
    if node.op_type == _FUSED[1]:
        slot = len(node.inputs)
    else:
        slot, own = _MASK, as_tensor(node.inputs[_MASK]) if len(node.inputs) > _MASK else None
        if own is not None:
            with op.at(node, stage="forward", source="", prefix=node.name or ""):
                same = _both(op, own, same)
    node.resize_inputs(max(slot + 1, len(node.inputs)))
    node.replace_input_with(slot, same)


def _both(op: Builder, own: Tensor, same: Tensor) -> Tensor:
    """What a mask and the one of documents leave."""
    if own.dtype == ir.DataType.BOOL:
        return op.And(own, same)
    lowest = float(np.finfo(own.dtype.numpy()).min)
    return op.Where(same, own, op.constant(lowest, own.dtype))
