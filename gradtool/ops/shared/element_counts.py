"""Counts of elements, which formulas are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from gradtool.graph.specs import Spec


class Shaped(Protocol):
    """Operand of a formula: a `Spec` or an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes by axis."""


Results = Sequence[Spec | None]


def size(*arrays: Shaped | None) -> int:
    """Elements of these operands together; an absent one has none."""
    return sum(math.prod(a.shape) for a in arrays if a is not None)


def result(out: Results) -> Spec:
    """The first wanted output."""
    return next(spec for spec in out if spec is not None)


def made(out: Results) -> int:
    """Elements of the first wanted output."""
    return size(result(out))


def wanted(out: Results, *indices: int) -> bool:
    """Whether any of these outputs is asked for."""
    return any(i < len(out) and out[i] is not None for i in indices)


def lines(shape: Sequence[int], axes: Iterable[int]) -> int:
    """Number of lines of an array of `shape` along `axes`: the size of a reduction over them."""
    reduced = {axis % len(shape) for axis in axes} if shape else set()
    return math.prod(n for axis, n in enumerate(shape) if axis not in reduced)
