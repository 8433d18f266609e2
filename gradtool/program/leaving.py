"""A program less the values that nothing touches any more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import MappingProxyType

from gradtool.program import Program, Step, Value


def without(program: Program, gone: Collection[int]) -> Program:
    """The program without values that no step, view or result needs; the others are renumbered."""
    kept = [v for v in range(len(program.values)) if v not in gone]
    new = {v: i for i, v in enumerate(kept)}

    def renumbered(values: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return tuple(None if v is None else new[v] for v in values)

    def value(datum: Value) -> Value:
        view = datum.view and replace(datum.view, base=new[datum.view.base])
        return replace(datum, view=view, alias=None if datum.alias is None else new[datum.alias])

    def step(old: Step) -> Step:
        return replace(old, inputs=renumbered(old.inputs), outputs=renumbered(old.outputs))

    return replace(
        program,
        values=tuple(value(program.values[v]) for v in kept),
        steps=tuple(map(step, program.steps)),
        inputs=tuple(new[v] for v in program.inputs),
        outputs=tuple(new[v] for v in program.outputs),
        constants=MappingProxyType({new[v]: a for v, a in program.constants.items() if v in new}),
        gradients=MappingProxyType({name: new[v] for name, v in program.gradients.items()}),
        state=MappingProxyType({new[old]: new[now] for old, now in program.state.items()}),
        loss=None if program.loss is None else new[program.loss],
    )
