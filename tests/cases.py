"""The table of operator cases, through which every rule and kernel is checked.

`case("MatMul", (5, 2, 3), (3, 4))`: a tuple is a random float input of that shape, differentiated;
an array is a constant input; None is an absent one.  `floats(…)` sets the distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Floats:
    """A random float input: uniform in [low, high], magnitudes at least `gap`; differentiated
    unless `fixed`. With `distinct`, all elements differ by more than a finite difference step."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    gap: float = 0.05
    fixed: bool = False
    distinct: bool = False

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        size = math.prod(self.shape)
        if self.distinct and size:
            steps = np.linspace(self.low, self.high, size + 1)[:-1] + (self.high - self.low) / (
                2 * size
            )
            return rng.permutation(steps).reshape(self.shape)
        values = rng.uniform(self.low, self.high, self.shape)
        return np.where(np.abs(values) < self.gap, np.copysign(self.gap, values) + values, values)


@dataclass(frozen=True)
class Case:
    """One operator with its inputs and attributes; `check` says what is compared."""

    op: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 20
    gradient: bool = True
    ort: bool = True
    note: str = ""

    @property
    def id(self) -> str:
        shapes = ",".join(_show(i) for i in self.inputs)
        given = ",".join(f"{k}={v}" for k, v in self.attributes.items())
        attributes = f"[{given}]" if given else ""
        return f"{self.op}({shapes}){attributes}@{self.opset}{self.note}"


def _show(value: Any) -> str:
    if value is None:
        return "-"
    shape = value if isinstance(value, tuple) else value.shape
    return "x".join(map(str, shape)) or "scalar"


def floats(*shape: int, **options: Any) -> Floats:
    return Floats(tuple(shape), **options)


def positive(*shape: int, low: float = 0.3, high: float = 2.0) -> Floats:
    return Floats(tuple(shape), low=low, high=high, gap=0.0)


def fixed(*shape: int, **options: Any) -> Floats:
    return Floats(tuple(shape), fixed=True, **options)


def integers(*values: Any) -> np.ndarray:
    return np.asarray(values[0] if len(values) == 1 else values, dtype=np.int64)


CASES: list[Case] = []


def case(
    op: str,
    *inputs: Any,
    outputs: int = 1,
    opset: int = 20,
    gradient: bool = True,
    ort: bool = True,
    note: str = "",
    **attributes: Any,
) -> None:
    """Add a case. `gradient=False`: forward only. `ort=False`: onnxruntime lacks or breaks it."""
    made = tuple(Floats(i) if isinstance(i, tuple) else i for i in inputs)
    CASES.append(Case(op, made, attributes, outputs, opset, gradient, ort, note))


@dataclass(frozen=True)
class Whole:
    """A model in ONNX text without its header, for operators that need more than one node.

    `weights` and `wrt` are names of its inputs, the first of those that become initializers.
    """

    name: str
    text: str
    weights: str
    wrt: str
    feeds: dict[str, Any]

    @property
    def ops(self) -> set[str]:
        """The operators of its nodes, those in bodies included."""
        from onnx import parser

        pending = list(parser.parse_graph(self.text).node)
        found = set()
        for node in pending:
            found.add(f"{node.domain}::{node.op_type}" if node.domain else node.op_type)
            for attribute in node.attribute:
                pending.extend(attribute.g.node)
        return found


WHOLE: list[Whole] = []


def whole(name: str, text: str, weights: str, wrt: str, **feeds: Any) -> None:
    """Add a model; `feeds` are its inputs."""
    arrays = {key: np.asarray(value) for key, value in feeds.items()}
    WHOLE.append(Whole(name, text, weights, wrt, arrays))
