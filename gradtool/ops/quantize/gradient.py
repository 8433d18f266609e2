"""Gradients of quantisation: none of rounding, but of the scale, and straight through if asked."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.attributes import arguments
from gradtool.graph.predicates import is_integer
from gradtool.graph.typed import Node, Tensor, given
from gradtool.ops.gradients import Gradients, gradient

STEP = "rounding has no derivative; pass --ste to let gradients straight through"
READ = (
    "its integers are read otherwise than gradients can follow: by a DequantizeLinear of the same "
    "scale and zero point, or a MatMulInteger or ConvInteger of that zero point that is cast to "
    "floats"
)
FROZEN = (
    "a matrix of few bits is frozen: its scales and zero points have no gradient; "
    "--lora RANK trains an adapter beside it"
)
LAYOUTS = ("Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger")


def require_unrounded(op: Builder, value: ir.Value) -> None:
    """Refuse integers rounded from values whose gradient is asked for.

    Raises:
        UnsupportedGradient: naming the node that rounded them.
    """
    waiting, seen = [value], {value}
    while waiting:
        node = waiting.pop().producer()
        if node is None or node.domain:
            continue
        if node.op_type in ROUNDING and not op.active.isdisjoint(node.inputs):
            weight = node.op_type == "QuantizeLinear" and not op.ste
            raise UnsupportedGradient(node, STEP if weight else READ)
        read = [v for v in node.inputs if v is not None and v in op.active and v not in seen]
        more = [v for v in read if is_integer(v)]
        seen.update(more)
        waiting += more


def _is_laid_out(value: ir.Value) -> bool:
    """Whether integers are constants in another layout, or of chosen places."""
    node = value.producer()
    while node is not None and node.op_type in LAYOUTS and not node.domain:
        first = node.inputs[0]
        if first is None or first.is_initializer():
            return first is not None
        node = first.producer()
    return False


def require_frozen(op: Builder, node: Node, matrix: Iterable[ir.Value | None]) -> None:
    """Refuse to differentiate by what a matrix of few bits is made of.

    Raises:
        UnsupportedGradient: naming the node that reads it.
    """
    if any(v in op.active for v in matrix if v is not None):
        raise UnsupportedGradient(node, FROZEN)


@gradient("QuantizeLinear")
def quantize_linear(op: Builder, node: Node, dy: Tensor) -> None:
    """`y = round(x / scale)`: only as a float of 8 bits can a gradient arrive."""
    raise UnsupportedGradient(node, STEP)


@gradient("DynamicQuantizeLinear")
def dynamic_quantize_linear(op: Builder, node: Node, *dys: Tensor) -> Gradients:
    """None: the measured scale and zero point are constants."""
    return (None,)


@gradient("DequantizeLinear")
def dequantize_linear(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = (x - zero) · scale`:  dscale = Σ dy · (x - zero)."""
    (x, scale), zero = node.inputs[:2], given(node, 2)
    if x in op.active and not _is_laid_out(x):
        require_unrounded(op, x)
        raise UnsupportedGradient(node, STEP)
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


@gradient("ai.gradtool::QuantizedMatMul")
def quantized_matmul(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = x Wᵀ` of a matrix of few bits:  dx = dy W, which is decoded again.

    Raises:
        UnsupportedGradient: the scales are asked for.
    """
    matrix = (*node.inputs[1:3], given(node, 3), given(node, 4))
    require_frozen(op, node, matrix)
    options = arguments(node)
    options["turned"] = 1 - options.get("turned", 1)
    return op.QuantizedMatMul(dy, *matrix, **options), None, None, None, None
