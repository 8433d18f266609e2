"""Steps run again as late as possible: each just before the first backward step that needs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gradtool.planning.schedule import Schedule
from gradtool.planning.simulate import Simulator
from gradtool.program import Program


def late(program: Program, again: Mapping[int, str], held: Collection[int] = ()) -> Schedule:
    """The steps of `program` in order, with clones of `again` before their first backward reader.

    `again` gives each forward step that runs twice the suffix of its clone.  The reads of a clone
    are recomputed first if they are in `again`; never the outputs of the program, nor the storages
    `held`.  A clone without a reader is not made.
    """
    live_out = {program.storage(v) for v in program.outputs} | set(held)
    producer = {v: i for i in again for v in program.steps[i].writes if v not in live_out}
    made: set[int] = set()
    order: list[int] = []
    suffixes: list[str] = []
    reads = Simulator.of(program).reads
    for index, step in enumerate(program.steps):
        if step.stage != "forward" and not producer.keys().isdisjoint(reads[index]):
            for clone in _needed(reads, index, producer, made):
                order.append(clone)
                suffixes.append(again[clone])
        order.append(index)
        suffixes.append("")
    return Schedule(tuple(order), tuple(suffixes))


def _needed(
    reads: Sequence[Sequence[int]], reader: int, producer: Mapping[int, int], made: set[int]
) -> list[int]:
    """The clones to make before `reader`, each after its producers; they join `made`."""
    found: list[int] = []
    waiting = [(reader, False)]
    while waiting:
        step, ready = waiting.pop()
        if ready:
            found.append(step)
            continue
        if step != reader:
            if step in made:
                continue
            made.add(step)
            waiting.append((step, True))
        sources = dict.fromkeys(producer[r] for r in reads[step] if r in producer)
        waiting.extend((s, False) for s in reversed(sources) if s not in made)
    return found
