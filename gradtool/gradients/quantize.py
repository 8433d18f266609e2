"""Gradients of quantisation: none of rounding, but of the scale, and straight through if asked."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.gradients import Gradients, gradient
from gradtool.graph.known import Node, Tensor, given

STEP = "rounding has no derivative; pass --ste to let gradients straight through"


@gradient("QuantizeLinear")
def quantize_linear(op: Builder, node: Node, dy: Tensor) -> None:
    """`y = round(x / scale)`: only as a float of 8 bits can a gradient arrive."""
    raise UnsupportedGradient(node, STEP)


@gradient("DynamicQuantizeLinear")
def dynamic_quantize_linear(op: Builder, node: Node, *dys: Tensor) -> Gradients:
    """Straight through, the scale and the zero point that it measures are constants."""
    if not op.ste:
        raise UnsupportedGradient(node, STEP)
    return (None,)


@gradient("DequantizeLinear")
def dequantize_linear(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = (x - zero) · scale`:  dscale = Σ dy · (x - zero)."""
    (x, scale), zero = node.inputs[:2], given(node, 2)
    if x in op.active:
        why = "its input isn't that of a QuantizeLinear of the same scale" if op.ste else STEP
        raise UnsupportedGradient(node, why)
    axis = node.attributes.get_int("axis", 1)
    block_size = node.attributes.get_int("block_size", 0)
    return None, op.DequantizeGradScale(x, scale, dy, zero, axis=axis, block_size=block_size), None


@gradient("ai.gradtool::FakeQuantize")
def fake_quantize(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = round(x / scale) · scale`: straight through within the range of the quantised type.

    Source: Esser et al. 2020 (arXiv:1902.08153), eq. 3, without their scaling of the step's
    gradient.
    """
    (x, scale), zero = node.inputs[:2], given(node, 2)
    asked = node.attributes
    options = {
        "kind": asked.get_int("kind", int(ir.DataType.UINT8)),
        "axis": asked.get_int("axis", 1),
        "block_size": asked.get_int("block_size", 0),
    }
    dx = op.FakeQuantizeGrad(x, scale, dy, zero, **options)
    y = node.outputs[0]
    return dx, op.FakeQuantizeGradScale(x, scale, y, dy, zero, **options), None
