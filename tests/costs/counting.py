"""Counting one call by hand: shapes in, operations out."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.graph.families import split_name
from gradtool.graph.specs import Spec
from gradtool.ops import costs
from gradtool.program import Program

Given = tuple[int, ...] | np.ndarray | Spec | None
PRODUCTS = ("Conv", "ConvGradInput", "ConvGradWeight", "Gemm", "MatMul", "SummedMatMul")


def spec(given: Given, dtype: Any = np.float32) -> Any:
    """A tuple is a shape; anything else is itself."""
    return Spec(given, np.dtype(dtype)) if isinstance(given, tuple) else given


def count(op: str, *inputs: Given, out: list[Given], opset: int = 20, **attributes: Any) -> Any:
    """The operations of one call."""
    specs, made = [spec(i) for i in inputs], [spec(o) for o in out]
    return costs.flops(*split_name(op), opset, specs, made, attributes)


def products(program: Program) -> int:
    """The operations of the matrix products and convolutions of a program, biases left out."""
    found = 0
    for step in program.steps:
        name = step.op.removeprefix("ai.gradtool::")
        if name in PRODUCTS:
            assert step.flops is not None
            biased = name in ("Conv", "Gemm") and len(step.inputs) > 2
            result = program.values[next(step.writes)].spec
            assert result is not None
            found += step.flops - (result.bytes // result.dtype.itemsize if biased else 0)
    return found
