"""In-place execution: the one rule of steps that overwrite inputs, for every count of bytes."""

from __future__ import annotations

from collections.abc import Container

from gradtool.graph.specs import is_contiguous
from gradtool.program import Program, Step


def donors(program: Program, step: Step, results: Container[int]) -> tuple[int, ...]:
    """The storages over which a step may write its first output once nobody needs them, in order.

    They are activations of the output's type, shape and layout, read by the step through
    overwritable inputs alone.  None of them is among `results`, the storages that stay to the end;
    and an output that aliases another value has no donor.
    """
    target = step.outputs[0] if step.outputs else None
    if target is None or program.values[target].alias is not None:
        return ()
    sources = (step.inputs[slot] for slot in step.may_inplace if slot < len(step.inputs))
    fits = (v for v in sources if v is not None and _fits(program, step, v, target))
    return tuple(dict.fromkeys(r for v in fits if (r := program.storage(v)) not in results))


def overwrites(program: Program, step: Step, value: int, output: int = 0) -> bool:
    """Whether an output may overwrite an input of its step.

    So it may if the step reads the storage only as that value, where its kernel may overwrite it,
    or doesn't read the storage at all.
    """
    root = program.storage(value)
    slots = [s for s, v in enumerate(step.inputs) if v is not None and program.storage(v) == root]
    return all(step.inputs[slot] == value and slot in _replaced(step, output) for slot in slots)


def _replaced(step: Step, output: int) -> tuple[int | None, ...]:
    """The inputs that an output of a step may overwrite."""
    return (step.may_inplace if output == 0 else ()) + step.over[output : output + 1]


def _fits(program: Program, step: Step, source: int, target: int) -> bool:
    """Whether an output has all the bytes of an input, laid out in the same way."""
    old, new = program.values[source], program.values[target].spec
    root = program.values[program.storage(source)]
    made = program.values[target]
    if (old.channels_last, old.by_column) != (made.channels_last, made.by_column):
        return False
    if new is None or old.spec != new or root.kind != "activation" or root.bytes != new.bytes:
        return False
    plain = old.view is None or is_contiguous(new, program.strides(source))
    return plain and overwrites(program, step, source)
