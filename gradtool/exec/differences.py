"""Distances between the gradients of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradtool.exec.results import Result
from gradtool.text.words import count

Arrays = Mapping[str, np.ndarray[Any, Any]]


def worst(mine: Arrays, other: Arrays) -> tuple[float, str]:
    """The largest relative difference in norm over the gradients, and where it is."""
    total = np.sqrt(sum(float(np.vdot(g, g)) for g in map(_wide, other.values()))) or 1.0
    most, where = 0.0, ""
    for name, reference in other.items():
        wide = _wide(reference)
        error = np.linalg.norm((_wide(mine[name]) - wide).reshape(-1))
        relative = float(error / (np.linalg.norm(wide.reshape(-1)) + 1e-4 * total))
        if not relative <= most:
            most, where = relative, name
    return most, where


def agree(number: int, noun: str) -> str:
    """So many things that agree, for people."""
    return f"{count(number, noun)} {'agrees' if number == 1 else 'agree'}"


def _wide(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(np.float64)


def results(result: Result) -> tuple[str, Arrays]:
    """The gradients; of a model that updates its parameters instead, its outputs.

    Next values of parameters are left out where an optimizer keeps state, which is compared: where
    a gradient is zero but for rounding, Adam divides rounding by itself.
    """
    if result.gradients:
        return "gradients", result.gradients
    values = result.plan.program.values if result.plan else ()
    state = result.plan.program.state if result.plan else {}
    stateful = any(values[old].kind == "state" for old in state)
    left_out = {values[new].name for old, new in state.items()
                if stateful and values[old].kind == "parameter"}  # fmt: skip
    numbers = {n: a for n, a in result.outputs.items() if a.dtype.kind in "fiu"}
    return "outputs", {n: a for n, a in numbers.items() if n not in left_out}
