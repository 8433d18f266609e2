"""Activations: operations per element of the formula that each stands for."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.ops.costs import cost, each
from gradtool.ops.shared.element_counts import Results, Shaped, made, size

SIGMOID = 4  # 1 / (1 + exp(-x))
SOFTPLUS = 6  # max(x, 0) + log1p(exp(-|x|))

each({
    "Celu": 5,  # x > 0 ? x : α · (exp(x / α) - 1)
    "Elu": 4,  # x > 0 ? x : α · (exp x - 1)
    "Erf": 1,
    "HardSigmoid": 4,  # max(min(α · x + β, 1), 0)
    "HardSwish": 5,  # x · hardsigmoid x
    "LeakyRelu": 2,  # x > 0 ? x : α · x
    "Mish": SOFTPLUS + 2,  # x · tanh(softplus x)
    "PRelu": 2,
    "Relu": 1,
    "Selu": 5,  # γ · (x > 0 ? x : α · (exp x - 1))
    "Shrink": 4,  # x < -λ ? x + β : x > λ ? x - β : 0
    "Sigmoid": SIGMOID,
    "Softplus": SOFTPLUS,
    "Softsign": 3,  # x / (1 + |x|)
    "Swish": 4,  # x / (1 + exp(-α · x))
    "ThresholdedRelu": 1,
    "Hardmax": 1,  # the place of the largest
    "Softmax": 5,  # max, -, exp, Σ, /
    "LogSoftmax": 5,  # max, -, exp, Σ, -; the logarithms of the lines are few
    "ai.gradtool::LeakyReluGrad": 2,
    "ai.gradtool::PReluGrad": 2,
})  # fmt: skip


@cost("Gelu")
def gelu(_: Shaped, *, out: Results, approximate: str = "none") -> int:
    """`½ x (1 + erf(x / √2))`, or `½ x (1 + tanh(c x (1 + k x²)))`."""
    return (9 if approximate == "tanh" else 5) * made(out)


@cost("ai.gradtool::EluGrad")
def elu_grad(*_: Shaped, out: Results, beta: float = 1.0, **__: Any) -> int:
    """`dx = y > 0 ? γ dy : β (y + α) dy`."""
    return (3 if beta == 1 else 4) * made(out)


@cost("Dropout")
def dropout(
    x: Shaped, _ratio: Any = None, training: Any = None, *, out: Results, **_: Any
) -> int | None:
    """A draw, a comparison and a scaling in training, else a copy."""
    del out
    if training is None:
        return 0
    if not isinstance(training, np.ndarray):
        return None
    return 3 * size(x) if training.reshape(-1)[0] else 0


each({
    "ai.gradtool::DropoutGrad": 1,
    "ai.gradtool::DropoutMask": 115,  # 20 rounds of 5 operations, 5 keys, a comparison
    "ai.gradtool::MaskGrad": 1,
})  # fmt: skip
