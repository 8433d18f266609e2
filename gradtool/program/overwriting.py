"""New values of parameters and state, written over the old ones where nobody reads those any more.

The parameters of a training step are held throughout, so what replaces one takes no bytes of its
own: the step leaves the arena as the next step wants it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradtool.program import Program, Value
from gradtool.program.in_place import overwrites


def overwriting(program: Program) -> Program:
    """The program whose next values of `state` lie over the old ones wherever they may.

    They may where type and shape are the same and every step that reads the old value runs before
    the one that writes the new one, or is that step and its kernel works in place.
    """
    if not program.state:
        return program
    readers = _readers(program)
    writer = {v: i for i, step in enumerate(program.steps) for v in step.writes}
    returned = {program.storage(v) for v in program.outputs}
    alias: dict[int, int] = {}
    for old, new in program.state.items():
        known = new in writer and new not in alias and old not in returned
        if known and _alike(program.values[old], program.values[new]):
            last = writer[new]
            step = program.steps[last]
            over = overwrites(program, step, old, step.outputs.index(new))
            if all(i < last or (i == last and over) for i in readers.get(old, ())):
                alias[new] = old
    values = tuple(
        datum if datum.alias == alias.get(index) else replace(datum, alias=alias.get(index))
        for index, datum in enumerate(program.values)
    )
    return replace(program, values=values)


def write_after_read(program: Program) -> Iterator[tuple[int, int]]:
    """Pairs of steps: one reads an old value, the other writes the new one over it."""
    alias = {datum.alias: v for v, datum in enumerate(program.values) if datum.alias is not None}
    writer = {v: i for i, step in enumerate(program.steps) for v in step.writes}
    if alias:
        readers = _readers(program)
        for old, new in alias.items():
            last = writer[new]
            yield from ((reader, last) for reader in readers.get(old, ()) if reader != last)


def _readers(program: Program) -> dict[int, list[int]]:
    """By storage, the steps that read it."""
    found: dict[int, list[int]] = {}
    for index, step in enumerate(program.steps):
        for root in dict.fromkeys(program.storage(v) for v in step.reads):
            found.setdefault(root, []).append(index)
    return found


def _alike(old: Value, new: Value) -> bool:
    held = old.kind in ("parameter", "state") and old.view is None and new.view is None
    return held and old.spec is not None and old.spec == new.spec
