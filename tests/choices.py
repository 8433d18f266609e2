"""Graphs whose gradients read a value of forward only to choose by it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from graphs import parse

from gradtool import shapes

# By composite: a forward graph whose gradient calls it, and reads nothing else of `h`.
SOURCES = {
    "AbsGrad": "y = Abs (h)",
    "ClipGrad": "y = Clip (h, low, high)",
    "GlobalMaxPoolGrad": "y = GlobalMaxPool (h)",
    "HardSigmoidGrad": "y = HardSigmoid <alpha = 0.3> (h)",
    "LeakyReluGrad": "y = LeakyRelu <alpha = -0.3> (h)",
    "MaxGrad": "y = Max (h, zero)",
    "MinGrad": "y = Min (h, zero)",
    "PReluGrad": "y = PRelu (h, slope)",
    "ReduceExtremeGrad": "y = ReduceMax (h, axes)",
    "ReluGrad": "y = Relu (h)",
}
CONSTANTS = {
    "low": np.array(-1.0), "high": np.array(1.0), "zero": np.array(0.0), "slope": np.array([0.3]),
    "axes": np.array([2, 3]),
}  # fmt: skip


def forward(name: str, dtype: str = "float") -> ir.Model:
    """`h = x + w`, then the operator; another one hides its result from the graph's outputs."""
    names = [n for n in CONSTANTS if n in SOURCES[name]]
    kinds = [f"int64[2] {n}" if n == "axes" else f"{dtype}[K] {n}" for n in names]
    formal = ", ".join([f"{dtype}[N, 3, 6, 9] x", f"{dtype}[9] w", *kinds])
    model = parse(f"g ({formal}) => (z) {{ h = Add (x, w) {SOURCES[name]} z = Neg (y) }}")
    for value in [v for v in model.graph.inputs if v.name in names]:
        array = CONSTANTS[value.name].astype(value.dtype.numpy())
        model.graph.inputs.remove(value)
        value.const_value, value.shape = ir.Tensor(array, name=value.name), ir.Shape(array.shape)
        model.graph.register_initializer(value)
    shapes.infer(model)
    return model
