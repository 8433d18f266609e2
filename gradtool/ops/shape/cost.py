"""Operators that move data: free, but for their sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtool.operators.resampling import Taps, taps
from gradtool.ops.costs import cost, each, free
from gradtool.ops.shared.element_counts import Results, Shaped, made, result, size

free((
    "BitCast", "CenterCropPad", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Expand",
    "Flatten", "Pad", "Reshape", "ReverseSequence", "Shape", "Size", "Slice", "SpaceToDepth",
    "Split", "Squeeze", "TensorScatter", "Tile", "Transpose", "Trilu", "Unsqueeze",
    "ai.gradtool::Col2ImGrad", "ai.gradtool::SliceGrad", "ai.gradtool::TensorScatterGrad",
))  # fmt: skip

each({"Col2Im": (1, 0), "Range": 2})  # added at their places; start + i · delta


@cost("ai.gradtool::PadGrad")
def pad_grad(dy: Shaped, *, out: Results, mode: str) -> int:
    """Additions of repeated padding; constants and crops are dropped."""
    return 0 if mode == "constant" else max(0, size(dy) - made(out))


def _along(shape: tuple[int, ...], steps: list[Taps], *, backward: bool) -> int:
    """Weighted sums along one axis after the other; plain copies are free, their gradient adds."""
    have, count = list(shape), 0
    for step in steps:
        uses = int(np.count_nonzero(step.weights))
        have[step.axis] = 1
        lines = math.prod(have)
        have[step.axis] = len(step.index)
        copies = bool((step.weights[step.weights != 0] == 1).all())
        if backward:
            count += lines * uses * (1 if copies else 2)
        elif not step.copies:
            count += lines * 2 * uses
    return count


@cost("Resize")
def resize(x: Shaped, *inputs: Any, out: Results, **attributes: Any) -> int:
    """A weighted sum of the neighbours along each axis that changes."""
    return _along(x.shape, taps(x.shape, result(out).shape, *inputs, **attributes), backward=False)


@cost("ai.gradtool::ResizeGrad")
def resize_grad(dy: Shaped, _: Any, *inputs: Any, out: Results, **attributes: Any) -> int:
    """The transposed sums; of only repeated elements, one addition each."""
    forward = taps(result(out).shape, dy.shape, *inputs, **attributes)
    if all(step.repeats for step in forward):
        return size(dy)
    backward = [step.transposed() for step in reversed(forward)]
    return _along(dy.shape, backward, backward=True)
