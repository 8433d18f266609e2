"""Which repeats a schedule may do without."""

from __future__ import annotations

from collections.abc import Iterator

from gradtool.planning.ladder.line import Line


def repeats(line: Line) -> Iterator[int]:
    """The entries that run a step again, the dearest first, while they do."""
    costs = line.work.costs
    for entry in sorted(line.repeats(), key=lambda e: (-costs[line.place[e]], e)):
        if entry in line.place and not line.is_first(entry):
            yield entry


def could_stay(line: Line, entry: int, budget: int) -> bool:
    """Whether what a repeat makes could have stayed alive."""
    work = line.work
    for r in work.fleeting[line.place[entry]]:
        run = line.run(r, entry)
        if run is None or line.end(r, entry) == entry:
            continue
        if line.most(line.end(r, run), entry) + work.bytes[r] > budget:
            return False
    return True
