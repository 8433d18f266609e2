"""Activations: operations per element of the formula that each stands for."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.ops.costs import cost, each
from gradtool.ops.shared.element_counts import Shaped, size

each(
    {
        "Hardmax": 1,  # the place of the largest
        "Softmax": 5,  # max, -, exp, Σ, /
        "LogSoftmax": 5,  # max, -, exp, Σ, -; the logarithms of the lines are few
        "ai.gradtool::DropoutMask": 115,  # 20 rounds of 5 operations, 5 keys, a comparison
    }
)


@cost("Dropout")
def dropout(x: Shaped, _ratio: Any = None, training: Any = None) -> int | None:
    """A draw, a comparison and a scaling in training, else a copy."""
    if training is None:
        return 0
    if not isinstance(training, np.ndarray):
        return None
    return 3 * size(x) if training.reshape(-1)[0] else 0
