"""Probabilities of two classes, `1 - p` beside `p`: the scores that they are the softmax of."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder


def score_of(value: ir.Value) -> ir.Value | None:
    """The s of `[1 - σ(s), σ(s)]`, or None if a value is no such thing."""
    node = value.producer()
    if node is None or node.op_type != "Concat" or len(node.inputs) != 2:
        return None
    rest, p = node.inputs
    less = rest.producer() if rest is not None else None
    sigmoid = p.producer() if p is not None else None
    if less is None or sigmoid is None or sigmoid.op_type != "Sigmoid":
        return None
    if less.op_type != "Sub" or less.inputs[1] is not p or not _is_one(less.inputs[0]):
        return None
    return sigmoid.inputs[0]


def _is_one(value: ir.Value | None) -> bool:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return tensor is not None and tensor.size == 1 and float(tensor.numpy().item()) == 1


def scores(op: Builder, value: ir.Value, score: ir.Value) -> tuple[ir.Value, int]:
    """`[0, s]`, whose softmax the probabilities `value` are, and the axis of the classes."""
    node = value.producer()
    assert node is not None  # noqa: S101 - a value that has a score is a Concat
    axis = node.attributes.get_int("axis", 1) % len(value.shape or (1,))
    with op.at(None, stage="forward", source="", prefix="loss"):
        both: ir.Value = op.Concat(op.zeros_like(score), score, axis=axis)
    return both, axis
