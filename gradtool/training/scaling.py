"""The loss scale of a step.

Source: torch.amp.GradScaler (PyTorch 2), with its constants: times 2 after 2 000 steps without an
infinity, by 2 after each with one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from gradtool.errors import GradtoolError, UsageError
from gradtool.training.options import fixed_scale
from gradtool.training.progress import Progress

FIRST = 2.0**16
GROWTH = 2.0
INTERVAL = 2000  # steps without an infinity
LEAST = 2.0**-40  # of a scale: gradients that are infinite at this one are so at any


def largest(dtype: np.dtype[Any]) -> float:
    """The largest power of two that a loss of a type can be multiplied by."""
    return math.ldexp(0.5, math.frexp(float(ml_dtypes.finfo(dtype).max))[1])


def first(given: str | float | None, dtype: np.dtype[Any]) -> float:
    """The scale of the first step. Raises UsageError if the type of the loss has no such number."""
    if given == "dynamic":
        return min(FIRST, largest(dtype))
    fixed = fixed_scale(given) or 1.0
    if fixed > float(ml_dtypes.finfo(dtype).max):
        raise UsageError(f"a loss scale of {fixed:g} is more than {dtype} has")
    return fixed


def after(progress: Progress, given: str | float | None, most: float, *, finite: bool) -> Progress:
    """The progress with the scale of the next step, which is `most` at most.

    Raises:
        GradtoolError: gradients are infinite at any scale.
    """
    if not finite:
        progress = replace(progress, skipped=progress.skipped + 1)
    if given != "dynamic":
        return progress
    if not finite:
        if progress.scale < LEAST:
            raise GradtoolError(
                f"step {progress.step + 1}: gradients are not finite at any loss scale; "
                "gradtool run --check-nan names the first node with a NaN"
            )
        return replace(progress, scale=progress.scale / GROWTH, steady=0)
    if progress.steady + 1 == INTERVAL:
        return replace(progress, scale=min(progress.scale * GROWTH, most), steady=0)
    return replace(progress, steady=progress.steady + 1)
