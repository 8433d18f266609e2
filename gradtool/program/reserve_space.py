"""Reserve space of native forward kernels for their gradients, to save computing it twice.

LSTM makes the gates and the cell states of all times on its way; its gradient needs them.  Where a
gradient reads the very operands and the result of a forward step, and both are native, they pass
from one to the other as a value of the program: planned, and recomputed with its step, as others.
Without a gradient nothing is kept.

Source: cuDNN and oneDNN pass the same as the reserve or workspace of recurrent layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gradtool.graph.families import split_name
from gradtool.graph.specs import Spec
from gradtool.ops import costs
from gradtool.ops.recurrent.native import KEPT_IN, KEPT_OUT, OPERANDS, kept
from gradtool.program import Program, Step, Value

PAIRED = _FORWARD, _GRADIENT = "LSTM", "ai.gradtool::LSTMGrad"


def keeping(program: Program) -> Program:
    """The program with reserve space of its native LSTM steps for their native gradients."""
    forward = {
        step.outputs[0]: number
        for number, step in enumerate(program.steps)
        if step.op == _FORWARD and step.is_native and step.outputs
    }
    same = _Same(program)
    values, steps = list(program.values), list(program.steps)
    for number, step in enumerate(steps):
        if step.op != _GRADIENT or not step.is_native:
            continue
        (result,) = step.inputs[OPERANDS : OPERANDS + 1]
        maker = forward.get(result)
        if maker is None or not same.belong(steps[maker], step):
            continue
        made = steps[maker]
        if len(made.outputs) <= KEPT_OUT:
            name = f"{made.name}.gates"
            values.append(Value(name, reserved(program.values, made), "activation"))
            made = _with_output(values, made, KEPT_OUT, len(values) - 1)
        steps[maker] = made
        steps[number] = _with_input(values, step, KEPT_IN, made.outputs[KEPT_OUT])
    return dataclasses.replace(program, values=tuple(values), steps=tuple(steps))


class _Same:
    """Equality of values: a recomputed value is its original, and so are views of it.

    So whether gates are kept does not depend on other recomputation of a plan.
    """

    def __init__(self, program: Program) -> None:
        self._values = program.values
        self._first = first_instances(program)

    def belong(self, forward: Step, gradient: Step) -> bool:
        """Whether a gradient is of a forward step: with its operands and its attributes."""
        given = _padded(forward.inputs, OPERANDS)
        are_same = map(self._key, given), map(self._key, gradient.inputs[:OPERANDS])
        return gradient.attributes == forward.attributes and all(
            a == b for a, b in zip(*are_same, strict=True)
        )

    def _key(self, value: int | None) -> object:
        """A key that equal values have in common."""
        if value is None:
            return None
        view = self._values[value].view
        if view is None:
            return self._first.get(value, value)
        spec = self._values[value].spec
        return self._key(view.base), view.offset, view.strides, spec and spec.shape


def reserved(values: Sequence[Value], forward: Step) -> Spec:
    """The reserve space of a native forward step."""
    x, _, r = (values[v].spec for v in forward.inputs[:3] if v is not None)
    assert x is not None and r is not None  # noqa: S101, PT018 - a native step
    return kept(x, r, forward.attributes)


def _with_output(values: Sequence[Value], step: Step, number: int, value: int) -> Step:
    outputs = (*_padded(step.outputs, number), value)
    return dataclasses.replace(step, outputs=outputs, moved=step.moved + values[value].bytes)


def _with_input(values: Sequence[Value], step: Step, number: int, value: int | None) -> Step:
    """The gradient that reads the reserve space instead of computing it."""
    assert value is not None  # noqa: S101 - forward has it
    inputs = (*_padded(step.inputs, number), value)
    given, out = ([None if v is None else values[v].spec for v in each]
                  for each in (inputs, step.outputs))  # fmt: skip
    return dataclasses.replace(
        step,
        inputs=inputs,
        flops=costs.flops(*split_name(step.op), step.version, given, out, step.attributes),
        moved=step.moved + values[value].bytes,
    )


def _padded(values: tuple[int | None, ...], count: int) -> tuple[int | None, ...]:
    return (*values, *(None,) * count)[:count]


def first_instances(program: Program) -> dict[int, int]:
    """By recomputed value, its original."""
    made = {step.name: step for step in program.steps if step.name}
    pairs = (
        pair
        for step in program.steps
        if step.stage == "recompute" and step.source in made
        for pair in zip(step.outputs, made[step.source].outputs, strict=False)
    )
    return {again: once for again, once in pairs if again is not None and once is not None}
