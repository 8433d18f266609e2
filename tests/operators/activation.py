"""Cases of the activation family."""

from __future__ import annotations

import numpy as np
from cases import case, fixed, floats

for name in ("Relu", "Sigmoid", "Tanh", "Softsign", "Mish", "Softplus", "HardSwish"):
    case(name, (3, 4), opset=22)
    case(name, (), opset=22)
    case(name, fixed(2, 40000, low=-30, high=30), opset=22, gradient=False)
for name in (
    "LeakyRelu",
    "Elu",
    "Selu",
    "Celu",
    "ThresholdedRelu",
    "Shrink",
    "HardSigmoid",
    "Gelu",
):
    case(name, floats(4, 4, distinct=True))
    case(name, ())
    case(name, fixed(2, 40000, low=-9, high=9, gap=0.2), gradient=False)
for alpha in (-0.5, 0.0, 0.3, 2.0):
    case("LeakyRelu", (3, 4), alpha=alpha)
    case("Elu", (3, 4), alpha=alpha, ort=alpha > 0)
case("Selu", (3, 4), alpha=0.5, gamma=2.0)
case("Selu", (3, 4), alpha=-0.5, gamma=2.0, ort=False)  # onnxruntime wants both positive
case("Celu", (3, 4), alpha=0.5)
case("Celu", (3, 4), alpha=-3.0, ort=False)
case("ThresholdedRelu", floats(4, 4, distinct=True), alpha=0.25)
case("ThresholdedRelu", floats(4, 4, distinct=True), alpha=-0.25)
case("Shrink", floats(4, 4, distinct=True), lambd=0.7, bias=0.3)
case("HardSigmoid", floats(4, 5, distinct=True, low=-3.9, high=4), alpha=0.3, beta=0.4)
case("HardSwish", floats(4, 5, distinct=True, low=-5, high=5.3))
for approximate in ("none", "tanh"):
    case("Gelu", floats(3, 4, low=-4, high=4), approximate=approximate)
    case("Gelu", fixed(2, 40000, low=-9, high=9), approximate=approximate, gradient=False)
for alpha in (1.0, 1.702):  # onnxruntime 1.31 has no kernel of it
    case("Swish", (3, 4), alpha=alpha, opset=24, ort=False)
for slope in ((2, 3, 4), (3, 1), (4,), (1,), ()):
    case("PRelu", (2, 3, 4), slope)

for name in ("Softmax", "LogSoftmax", "Hardmax"):
    differentiable = name != "Hardmax"
    case(name, (3, 4), gradient=differentiable)
    for axis in (0, 1, 2, -1, -2):
        case(name, (2, 3, 4), axis=axis, gradient=differentiable)
    case(name, (5,), gradient=differentiable)
    case(name, fixed(70, 900), gradient=False)
    case(name, fixed(3, 70, 900), axis=1, gradient=False)
    case(name, fixed(2, 40000), gradient=False)
case("Softmax", np.array([[1000.0, -1000, 0], [-np.inf, 1, 2]], np.float32), gradient=False)
case("LogSoftmax", np.array([[1000.0, -1000, 0], [-np.inf, 1, 2]], np.float32), gradient=False)

rate, yes, no = np.float32(0.25), np.array(True), np.array(False)
case("Dropout", (3, 4))
case("Dropout", (3, 4), rate)
case("Dropout", (3, 4), rate, no)
case("Dropout", (3, 4), rate, no, outputs=2)
case("Dropout", (3, 4), None, yes, outputs=2, seed=3, ort=False)  # each draws its own mask
case("Dropout", (3, 4), rate, yes, seed=3, ort=False)
case("Dropout", (3, 4), np.float32(0), yes, outputs=2)
