"""The operations per element of operators with a formula."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.ops.costs import cost
from gradtool.ops.elementwise.kernel_formulas import tape_of
from gradtool.ops.formulas import FORMULAS, Formula, find
from gradtool.ops.shared.element_counts import Results, made, result
from gradtool.ops.shared.types import DType


def operations(formula: Formula, dtype: DType, **attributes: Any) -> int:
    """The operations of an element."""
    if formula.counts is not None:
        return formula.counts
    return tape_of(formula, dtype, **attributes).counts


def of(name: str) -> int:
    """The operations of an element of an operator without attributes."""
    found = find(name)
    assert found is not None  # noqa: S101 - a name in our code
    return operations(found, np.dtype(np.float32))


def _register(formula: Formula) -> None:
    @cost(formula.name)
    def count(*_: Any, out: Results, **attributes: Any) -> int:
        return operations(formula, result(out).dtype, **attributes) * made(out)


for _formula in FORMULAS.entries():
    _register(_formula)
