"""The same graph in float64: the base of finite differences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool import io, shapes

NARROW = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
WIDE = ir.DataType.DOUBLE
TYPES = ("to", "dtype", "output_datatype", "stash_type", "softmax_precision")

# Operators that make float32 unless an attribute says otherwise.
MAKERS = {
    "RandomNormal": "dtype",
    "RandomUniform": "dtype",
    "SequenceEmpty": "dtype",
    "BlackmanWindow": "output_datatype",
    "HammingWindow": "output_datatype",
    "HannWindow": "output_datatype",
    "MelWeightMatrix": "output_datatype",
}


def widen(model: ir.Model) -> ir.Model:
    """A copy of a model with every narrower float as a float64. Weights stay lazy."""
    copy = model.clone()
    for graph in copy.graphs():
        made = (value for node in graph for value in node.outputs)
        for value in (*graph.inputs, *graph.initializers.values(), *made):
            if value.type is not None and value.dtype in NARROW:
                value.type = _wide(value.type)
        for value in graph.initializers.values():
            if value.const_value is not None and value.const_value.dtype in NARROW:
                value.const_value = _lazily(value.const_value)
        for node in graph:
            _widen_attributes(node)
    shapes.infer(copy)
    return copy


def _wide(kind: ir.TypeProtocol) -> ir.TypeProtocol:
    """A type of float64: of a tensor, or of a sequence of tensors."""
    if isinstance(kind, ir.SequenceType):
        return ir.SequenceType(_wide(kind.elem_type))
    if isinstance(kind, ir.OptionalType):
        return ir.OptionalType(_wide(kind.elem_type))
    return ir.TensorType(WIDE)


def _widen_attributes(node: ir.Node) -> None:
    """Element types and tensors in attributes: of Cast, Constant, ConstantOfShape and others."""
    for name, attr in list(node.attributes.items()):
        if name in TYPES and attr.value in NARROW:
            node.attributes[name] = ir.AttrInt64(name, int(WIDE))
        elif attr.type == ir.AttributeType.TENSOR and attr.as_tensor().dtype in NARROW:
            wide = attr.as_tensor().numpy().astype(np.float64)
            node.attributes[name] = ir.AttrTensor(name, ir.Tensor(wide))
    if node.op_type == "Constant" and "value_float" in node.attributes:
        number = node.attributes.pop("value_float").as_float()
        node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(np.asarray(number, np.float64)))
    if node.op_type == "ConstantOfShape" and "value" not in node.attributes:
        node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(np.zeros(1, np.float64)))
    kind = MAKERS.get(node.op_type)
    if kind is not None and kind not in node.attributes:
        node.attributes[kind] = ir.AttrInt64(kind, int(WIDE))


def _lazily(tensor: ir.TensorProtocol) -> ir.LazyTensor:
    make: Callable[[], Any] = partial(_wide_tensor, tensor)
    return ir.LazyTensor(make, dtype=WIDE, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name)


def _wide_tensor(tensor: ir.TensorProtocol) -> ir.Tensor[Any]:
    return ir.Tensor(io.array(tensor).astype(np.float64))
