"""Programs written by hand: `program("b = Exp a", …)`, every value a float32 array of one size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from gradtool.graph.specs import Spec, contiguous
from gradtool.ops import kernels as kernel
from gradtool.program import Program, Step, Value, View
from gradtool.program.donation import overwriting

FLOAT = np.dtype(np.float32)


def program(
    *steps: str,
    outputs: str,
    inputs: str = "x",
    parameters: str = "",
    sizes: Mapping[str, int] | None = None,
    views: Mapping[str, str] | None = None,
    work: Mapping[str, int] | None = None,
    in_place: bool = False,
) -> Program:
    """A program of elementwise steps `"out = Op in in"`.

    `sizes` gives elements (16 where it says nothing: one aligned buffer), `views` makes a value a
    window on another one, `work` gives bytes to the step that writes a value, and with `in_place`
    steps may overwrite the inputs that their kernels allow.
    """
    sizes, views, work = sizes or {}, views or {}, work or {}
    numbers: dict[str, int] = {}
    values: list[Value] = []

    def value(name: str, kind: str) -> int:
        if name in numbers:
            return numbers[name]
        spec = Spec((sizes.get(name, 16),), FLOAT)
        view = None
        if name in views:
            view = View(value(views[name], kind), 0, contiguous(spec))
        numbers[name] = len(values)
        values.append(Value(name, spec, kind, view))
        return numbers[name]

    for name in parameters.split():
        value(name, "parameter")
    for name in inputs.split():
        value(name, "input")
    made = []
    for text in steps:
        target, _, call = text.partition(" = ")
        op, *sources = call.split()
        reads = tuple(value(name, "activation") for name in sources)
        kind = "output" if target in outputs.split() else "activation"
        size = work.get(target, 0)
        made.append(
            Step(
                name=target,
                op=op,
                inputs=reads,
                outputs=(value(target, kind),),
                attributes=MappingProxyType({}),
                workspace=(Spec((size,), np.dtype(np.uint8)),) if size else (),
                may_inplace=declared(op) if in_place else (),
                version=20,
            )
        )
    for name in views:
        value(name, "output" if name in outputs.split() else "activation")
    return Program(
        values=tuple(values),
        steps=tuple(made),
        inputs=tuple(numbers[name] for name in inputs.split()),
        outputs=tuple(numbers[name] for name in outputs.split()),
        constants=MappingProxyType({}),
    )


def stepping(*steps: str, state: str = "w n", **options) -> Program:
    """A program whose parameter w has the next value n, in place where kernels allow."""
    made = program(*steps, outputs="n", parameters="w", in_place=True, **options)
    number = {v.name: i for i, v in enumerate(made.values)}
    old, new = state.split()
    return overwriting(replace(made, state=MappingProxyType({number[old]: number[new]})))


def declared(op: str) -> tuple[int, ...]:
    """The inputs that the kernel of a standard operator may overwrite."""
    found = kernel.find("", op, 20)
    assert found is not None
    return found.may_inplace
