"""Activations, products and normalizations of com.microsoft in standard operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

GELU, RMS_NORM = 20, 23  # the opsets of these operators


def inputs_of(node: Any, count: int) -> list[Any]:
    """The inputs of a node, None for absent ones."""
    return [*node.inputs, *[None] * count][:count]


def _gelu(op: Any, x: Any, *, tanh: bool = False) -> Any:
    if op.opset >= GELU:
        return op.Gelu(x, approximate="tanh" if tanh else None)
    if tanh:
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (1 + op.Tanh(inner))
    return x * 0.5 * (1 + op.Erf(x * math.sqrt(0.5)))


def plain_gelu(op: Any, node: Any) -> Sequence[Any]:
    return [_gelu(op, node.inputs[0])]


def bias_gelu(op: Any, node: Any) -> Sequence[Any]:
    return [_gelu(op, op.Add(*node.inputs))]


def fast_gelu(op: Any, node: Any) -> Sequence[Any]:
    x, bias = inputs_of(node, 2)
    return [_gelu(op, x if bias is None else x + bias, tanh=True)]


def quick_gelu(op: Any, node: Any) -> Sequence[Any]:
    x = node.inputs[0]
    return [x * op.Sigmoid(x * node.attributes.get_float("alpha", 1.702))]


def fused_matmul(op: Any, node: Any) -> Sequence[Any]:
    """`alpha · A' B'`; ' may exchange the last axes, and move the first behind the batch."""
    given = node.attributes
    sides = []
    for value, which in zip(node.inputs, "AB", strict=True):
        rank = len(value.shape or ())
        perm = list(range(rank))
        if given.get_int(f"transBatch{which}", 0):
            perm = [*perm[1:-1], 0, perm[-1]]
        if given.get_int(f"trans{which}", 0) and rank > 1:
            perm[-2:] = perm[:-3:-1]
        sides.append(op.transpose(value, perm))
    alpha = given.get_float("alpha", 1.0)
    product = op.MatMul(*sides)
    return [product if alpha == 1 else product * alpha]


# -------------------------------------------------------------------------- normalization


def _skipped(x: Any, skip: Any, bias: Any) -> Any:
    total = x + skip
    return total if bias is None else total + bias


def skip_layer_norm(op: Any, node: Any) -> Sequence[Any]:
    x, skip, scale, shift, bias = inputs_of(node, 5)
    total = _skipped(x, skip, bias)
    epsilon = node.attributes.get_float("epsilon", 1e-12)
    made = op.LayerNormalization(total, scale, shift, axis=-1, epsilon=epsilon, outputs=3)
    return [*made, total]


def rms_norm(
    op: Any, x: Any, scale: Any, axis: int, epsilon: float, *, deviation: bool
) -> tuple[Any, Any]:
    """`(x / √(mean x² + ε) · scale, 1 / √…)`, with the statistics in single precision."""
    if op.opset >= RMS_NORM and not deviation:
        return op.RMSNormalization(x, scale, axis=axis, epsilon=epsilon), None
    axes = range(axis % len(x.shape), len(x.shape))
    small = x.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    wide = op.cast(x, ir.DataType.FLOAT) if small else x
    rstd = op.Reciprocal(op.Sqrt(op.mean(wide * wide, axes) + epsilon))
    return op.cast(wide * rstd, x.dtype) * scale, rstd


def _reads(node: ir.Node, index: int) -> bool:
    if index >= len(node.outputs):
        return False
    return bool(node.outputs[index].uses()) or node.outputs[index].is_graph_output()


def simplified_layer_norm(op: Any, node: Any) -> Sequence[Any]:
    x, scale = node.inputs[:2]
    axis = node.attributes.get_int("axis", -1)
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    return rms_norm(op, x, scale, axis, epsilon, deviation=_reads(node, 1))


def skip_simplified_layer_norm(op: Any, node: Any) -> Sequence[Any]:
    x, skip, scale, bias = inputs_of(node, 4)
    total = _skipped(x, skip, bias)
    epsilon = node.attributes.get_float("epsilon", 1e-12)
    y, rstd = rms_norm(op, total, scale, -1, epsilon, deviation=_reads(node, 2))
    return [y, None, rstd, total]
