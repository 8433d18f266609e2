"""Elementwise operators by the library's programs, of arrays that lie anyhow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import elementwise as library
from gradtool.native import formulas
from gradtool.native.formulas import Formula
from gradtool.native.strided import AXES
from gradtool.ops.native import Bound, native, room
from gradtool.ops.shared.image_layouts import Laid
from gradtool.ops.shared.types import Array, Arrays, Specs

FLOAT, BOOL = np.dtype(np.float32), np.dtype(bool)
BROADCASTS = 7  # the opset from which on operators broadcast
MASKED = {"Where": (0,), "ai.gradtool::MaskGrad": (0,)}  # inputs that are booleans
MASKS = ("Greater", "Less", "Equal")  # operators whose result is


def _fits(op: str, *specs: Spec | None, out: Sequence[Spec | None], **_: Any) -> bool:
    y = out[0]
    if y is None or 0 in y.shape or len(y.shape) > AXES:
        return False
    wanted = [BOOL if slot in MASKED.get(op, ()) else FLOAT for slot in range(len(specs))]
    kinds = all(s is None or s.dtype == kind for s, kind in zip(specs, wanted, strict=True))
    return kinds and y.dtype == (BOOL if op in MASKS else FLOAT)


def _work(of: Callable[..., Formula], *specs: Spec | None, out: Specs, **given: Any) -> list[Spec]:
    inputs, found = [s for s in specs if s is not None], of(*specs, **given)
    held = sum(not lies_as(s, out[0]) for s in inputs) + len(found.numbers)
    held += out[0].dtype == BOOL
    count = math.prod(out[0].shape)
    return room(library.work(found.code, len(inputs) + len(found.numbers), held, count))


def lies_as(x: Spec, y: Spec) -> bool:
    """Whether floats lie as those of the result."""
    alike = type(x) is type(y) and type(y) in (Spec, Laid)
    return x.dtype == FLOAT and alike and x.shape == y.shape


def _bind(
    of: Callable[..., Formula], *inputs: Array | None, out: Arrays, work: Arrays, **given: Any
) -> Bound:
    found = of(*inputs, **given)
    numbers = [np.array(number, np.float32) for number in found.numbers]
    operands = [x for x in inputs if x is not None]
    spare = work[0] if work else np.empty(0, np.float32)
    return library.run(found.code, [*operands, *numbers], [out[0]], spare)


FORMULAS: dict[str, Callable[..., Formula]] = {}


def formula_of(op: str) -> Callable[..., Formula] | None:
    """The formula of an elementwise operator, by its inputs and attributes."""
    return FORMULAS.get(op)


def _register(op: str, of: Callable[..., Formula]) -> None:
    FORMULAS[op] = of
    since = BROADCASTS if op in ("Add", "Sub", "Mul", "Div", "Pow") else 1
    options: dict[str, Any] = {"since": since, "layouts": "alike", "strided": True}
    native(op, fits=partial(_fits, op), work=partial(_work, of), **options)(partial(_bind, of))


def _of_attributes(simple: Callable[..., Formula]) -> Callable[..., Formula]:
    return lambda *_inputs, **given: simple(**given)


def _of_count(varied: Callable[[int], Formula]) -> Callable[..., Formula]:
    return lambda *inputs: varied(len(inputs))


for _op, _simple in formulas.SIMPLE.items():
    _register(_op, _of_attributes(_simple))
for _op, _varied in formulas.VARIED.items():
    _register(_op, _of_count(_varied))


def _fits_cast(x: Spec, *, out: Sequence[Spec | None], **_: Any) -> bool:
    y = out[0]
    if y is None or 0 in y.shape or len(y.shape) > AXES:
        return False
    return (x.dtype, y.dtype) in ((FLOAT, BOOL), (BOOL, FLOAT))


def _cast(x: Spec | Array, **_: Any) -> Formula:
    return formulas.TO_BOOL if x.dtype == FLOAT else formulas.FROM_BOOL


FORMULAS["Cast"] = _cast
native("Cast", fits=_fits_cast, work=partial(_work, _cast), layouts="alike", strided=True)(
    partial(_bind, _cast)
)
_register("Clip", lambda _x, low=None, high=None: formulas.clip(low, high))
