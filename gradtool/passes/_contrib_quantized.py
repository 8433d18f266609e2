"""Operators on quantised tensors in those on floats, between DequantizeLinear and QuantizeLinear.

An integer q stands for `(q - zero) · scale`.  The operators of com.microsoft are replaced where a
model is loaded, those of the standard, which our kernels compute exactly, where it is
differentiated.  Integer sums of onnxruntime become sums of floats: a result may round to the
neighbour of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from gradtool.graph.attributes import arguments
from gradtool.passes._contrib_attention import refused
from gradtool.passes._contrib_dense import inputs_of
from gradtool.passes.parameters import SCALE

FLOAT = ir.DataType.FLOAT
AXES_BY_ATTRIBUTE = 13  # Softmax flattened its input before this opset


def _real(op: Any, q: Any, scale: Any, zero: Any, axis: int | None = None) -> Any:
    """The dequantised floats of integers; a scale of several elements is by `axis`."""
    return op.DequantizeLinear(q, scale, zero, axis=axis)


def _bias(op: Any, bias: Any, a_scale: Any, b_scale: Any, alpha: float = 1.0) -> Any:
    """A bias in steps of two scales, which are no parameters although a Mul reads them."""
    for scale in (a_scale, b_scale):
        scale.meta[SCALE] = True
    step = op.Mul(a_scale, b_scale)
    step = step if alpha == 1 else op.Mul(step, alpha)
    return op.Mul(op.cast(bias, FLOAT), step)


def _wholly(node: Any, name: str = "channels_last") -> None:
    if node.attributes.get_int(name, 0):
        raise refused(node, f"its {name}")


def _pairwise(name: str) -> Callable[[Any, Any], Sequence[Any]]:
    def rule(op: Any, node: Any) -> Sequence[Any]:
        a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = inputs_of(node, 8)
        y = getattr(op, name)(_real(op, a, a_scale, a_zero), _real(op, b, b_scale, b_zero))
        return [op.QuantizeLinear(y, scale, zero)]

    return rule


def _alone(function: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any], Sequence[Any]]:
    def rule(op: Any, node: Any) -> Sequence[Any]:
        x, x_scale, x_zero, scale, zero = inputs_of(node, 5)
        y = function(op, node, _real(op, x, x_scale, x_zero))
        return [op.QuantizeLinear(y, scale, zero)]

    return rule


def _leaky_relu(op: Any, node: Any, x: Any) -> Any:
    return op.LeakyRelu(x, alpha=node.attributes.get_float("alpha", 0.01))


def _softmax(op: Any, node: Any, x: Any) -> Any:
    axis = node.attributes.get_int("axis", -1)
    if node.attributes.get_int("opset", AXES_BY_ATTRIBUTE) >= AXES_BY_ATTRIBUTE:
        return op.Softmax(x, axis=axis)
    return op.Reshape(op.Softmax(op.Flatten(x, axis=axis), axis=-1), op.Shape(x))


def _average_pool(op: Any, node: Any, x: Any) -> Any:
    _wholly(node)
    given = {k: v for k, v in arguments(node).items() if k != "channels_last"}
    return op.AveragePool(x, **given)


def _global_average_pool(op: Any, node: Any, x: Any) -> Any:
    _wholly(node)
    return op.GlobalAveragePool(x)


def concat(op: Any, node: Any) -> Sequence[Any]:
    scale, zero, *rest = node.inputs
    parts = [_real(op, *rest[i : i + 3]) for i in range(0, len(rest), 3)]
    y = op.Concat(*parts, axis=node.attributes.get_int("axis", 0))
    return [op.QuantizeLinear(y, scale, zero)]


def where(op: Any, node: Any) -> Sequence[Any]:
    condition, a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = inputs_of(node, 9)
    y = op.Where(condition, _real(op, a, a_scale, a_zero), _real(op, b, b_scale, b_zero))
    return [op.QuantizeLinear(y, scale, zero)]


def gemm(op: Any, node: Any) -> Sequence[Any]:
    """`alpha · A' B' + C`, C in steps of `alpha · scale of A · scale of B`."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, scale, zero = inputs_of(node, 9)
    given = node.attributes
    alpha, turned = given.get_float("alpha", 1.0), given.get_int("transB", 0)
    bias = None if c is None else _bias(op, c, a_scale, b_scale, alpha)
    y = op.Gemm(
        _real(op, a, a_scale, a_zero), _real(op, b, b_scale, b_zero, 0 if turned else 1), bias,
        alpha=alpha, transA=given.get_int("transA", 0), transB=turned,
    )  # fmt: skip
    return [y if scale is None else op.QuantizeLinear(y, scale, zero)]


def qlinear_matmul(op: Any, node: Any) -> Sequence[Any]:
    """QLinearMatMul; scales of several elements are by row of the first, by column of the other."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = inputs_of(node, 8)
    rows, columns = (max(0, len(v.shape) - n) for v, n in ((a, 2), (b, 1)))
    y = op.MatMul(_real(op, a, a_scale, a_zero, rows), _real(op, b, b_scale, b_zero, columns))
    return [op.QuantizeLinear(y, scale, zero, axis=max(0, len(y.shape) - 2))]


def qlinear_conv(op: Any, node: Any) -> Sequence[Any]:
    """QLinearConv, whose bias is in steps of the scales of image and weight."""
    _wholly(node)
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias = inputs_of(node, 9)
    given = {k: v for k, v in arguments(node).items() if k != "channels_last"}
    bias = None if bias is None else op.Reshape(_bias(op, bias, x_scale, w_scale), [-1])
    y = op.Conv(_real(op, x, x_scale, x_zero), _real(op, w, w_scale, w_zero, 0), bias, **given)
    return [op.QuantizeLinear(y, scale, zero)]


def _scaled(op: Any, product: Any, by: Any, bias: Any) -> Sequence[Any]:
    y = op.Mul(op.cast(product, FLOAT), by)
    return [y if bias is None else op.Add(y, bias)]


def dynamic_quantize_matmul(op: Any, node: Any) -> Sequence[Any]:
    a, b, b_scale, b_zero, bias = inputs_of(node, 5)
    q, scale, zero = op.DynamicQuantizeLinear(a, outputs=3)
    return _scaled(op, op.MatMulInteger(q, b, zero, b_zero), op.Mul(scale, b_scale), bias)


def matmul_integer_to_float(op: Any, node: Any) -> Sequence[Any]:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = inputs_of(node, 7)
    return _scaled(op, op.MatMulInteger(a, b, a_zero, b_zero), op.Mul(a_scale, b_scale), bias)


def _recurrent_weight(op: Any, q: Any, scale: Any, zero: Any) -> Any:
    """The floats of `[directions, inputs, 4 · hidden]`, as `[directions, 4 · hidden, inputs]`.

    Scales are `[directions]` or `[directions, 4 · hidden]`.
    """
    scale.meta[SCALE] = True
    turned = op.Transpose(q, perm=[0, 2, 1])
    if len(scale.shape) == 1:
        return _real(op, turned, scale, zero, 0)
    scale, zero = op.Reshape(scale, [-1]), op.Reshape(zero, [-1])
    return op.Reshape(_real(op, op.Flatten(turned, axis=2), scale, zero, 0), op.Shape(turned))


def dynamic_quantize_lstm(op: Any, node: Any) -> Sequence[Any]:
    """An LSTM of dequantised weights and rounded inputs; onnxruntime rounds its states too."""
    x, w, r, bias, lengths, h, c, peepholes, w_scale, w_zero, r_scale, r_zero = inputs_of(node, 12)
    for scale, zero in ((w_scale, w_zero), (r_scale, r_zero)):
        if len(scale.shape) != len(zero.shape):
            raise refused(node, "its scales by another axis than its zero points")
    weights = [_recurrent_weight(op, *q) for q in ((w, w_scale, w_zero), (r, r_scale, r_zero))]
    x = _real(op, *op.DynamicQuantizeLinear(x, outputs=3))
    made = op.LSTM(
        x, *weights, bias, lengths, h, c, peepholes, **arguments(node), outputs=len(node.outputs)
    )
    return [made] if len(node.outputs) == 1 else made


def _renamed(name: str) -> Callable[[Any, Any], Sequence[Any]]:
    """The operator of the standard by this name, for its types at every opset."""

    def rule(op: Any, node: Any) -> Sequence[Any]:
        types = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None}
        if types - {None, FLOAT, ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32}:
            raise refused(node, f"its type {next(t for t in types if t != FLOAT)}")
        return [getattr(op, name)(*node.inputs, **arguments(node))]

    return rule


CONTRIB = {
    "DequantizeLinear": _renamed("DequantizeLinear"),
    "DynamicQuantizeLSTM": dynamic_quantize_lstm,
    "DynamicQuantizeMatMul": dynamic_quantize_matmul,
    "MatMulIntegerToFloat": matmul_integer_to_float,
    "QGemm": gemm,
    "QLinearAdd": _pairwise("Add"),
    "QLinearAveragePool": _alone(_average_pool),
    "QLinearConcat": concat,
    "QLinearConv": qlinear_conv,
    "QLinearGlobalAveragePool": _alone(_global_average_pool),
    "QLinearLeakyRelu": _alone(_leaky_relu),
    "QLinearMul": _pairwise("Mul"),
    "QLinearSigmoid": _alone(lambda op, _, x: op.Sigmoid(x)),
    "QLinearSoftmax": _alone(_softmax),
    "QLinearWhere": where,
    "QuantizeLinear": _renamed("QuantizeLinear"),
}
STANDARD = {"QLinearConv": qlinear_conv, "QLinearMatMul": qlinear_matmul}
