"""New values of parameters and state, written over the old ones where nobody reads those any more.

The parameters of a training step are held throughout, so what replaces one takes no bytes of its
own: the step leaves the arena as the next step wants it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradtool.program import Datum, Program


def overwriting(program: Program) -> Program:
    """The program whose next values of `state` lie over the old ones wherever they may.

    They may where type and shape are the same and every step that reads the old value runs before
    the one that writes the new one, or is that step and its kernel works in place.
    """
    readers = _readers(program)
    writer = {v: i for i, step in enumerate(program.steps) for v in step.writes}
    returned = {program.root(v) for v in program.outputs}
    over: dict[int, int] = {}
    for old, new in program.state.items():
        known = new in writer and new not in over and old not in returned
        if known and _alike(program.values[old], program.values[new]):
            last = writer[new]
            before = (i < last or (i == last and _in_place(program, i, old, new))
                      for i in readers.get(old, ()))  # fmt: skip
            if all(before):
                over[new] = old
    values = tuple(
        datum if datum.over == over.get(index) else replace(datum, over=over.get(index))
        for index, datum in enumerate(program.values)
    )
    return replace(program, values=values)


def write_after_read(program: Program) -> Iterator[tuple[int, int]]:
    """Pairs of steps: one reads an old value, the other writes the new one over it."""
    over = {datum.over: v for v, datum in enumerate(program.values) if datum.over is not None}
    writer = {v: i for i, step in enumerate(program.steps) for v in step.writes}
    if over:
        readers = _readers(program)
        for old, new in over.items():
            last = writer[new]
            yield from ((reader, last) for reader in readers.get(old, ()) if reader != last)


def _readers(program: Program) -> dict[int, list[int]]:
    """By storage, the steps that read it."""
    found: dict[int, list[int]] = {}
    for index, step in enumerate(program.steps):
        for root in dict.fromkeys(program.root(v) for v in step.reads):
            found.setdefault(root, []).append(index)
    return found


def _alike(old: Datum, new: Datum) -> bool:
    held = old.kind in ("parameter", "state") and old.view is None and new.view is None
    return held and old.spec is not None and old.spec == new.spec


def _in_place(program: Program, index: int, old: int, new: int) -> bool:
    """Whether a step may write a value over one that it reads."""
    step = program.steps[index]
    slots = [s for s, v in enumerate(step.inputs) if v is not None and program.root(v) == old]
    whole = all(step.inputs[slot] == old and slot in step.may_inplace for slot in slots)
    return whole and step.outputs[0] == new
