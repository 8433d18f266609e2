"""Which buffers a program needs, and from which step to which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gradtool.planning.plan import ALWAYS_LIVE, Region
from gradtool.program import Program, Step
from gradtool.program.in_place import donors


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Bytes that must lie somewhere from step `first` to step `last`, both included."""

    name: str
    region: Region
    bytes: int
    first: int
    last: int
    values: tuple[int, ...] = ()


_REGIONS: dict[str, Region] = {
    "parameter": "parameters",
    "state": "state",
    "constant": "constants",
    "input": "inputs",
    "activation": "activations",
    "gradient": "gradients",
    "output": "outputs",
}


def lifetimes(program: Program) -> list[Lifetime]:
    """One lifetime per buffer: always-live ones first, then in order of first use.

    A step holds its reads, its writes and its workspace together, but for an output that an
    operator writes in place.  Views keep their storage alive; outputs live to the end.  Next values
    of parameters and state lie where `gradtool.program.overwriting` lets them, over the old ones.
    """
    last = last_reads(program)
    shared = in_place(program, last)
    members: dict[int, list[int]] = {}
    for value, datum in enumerate(program.values):
        if datum.spec is not None and datum.view is None:
            members.setdefault(_owner(shared, value), []).append(value)
    born = {v: i for i, step in enumerate(program.steps) for v in step.outputs}
    end = max(len(program.steps) - 1, 0)
    results = _results(program)
    found = []
    for values in members.values():
        data = [program.values[v] for v in values]
        if data[0].kind == "host" or not data[0].bytes:
            continue
        region = _REGIONS[data[0].kind]
        always = region in ALWAYS_LIVE
        if not always:
            region = _REGIONS[results.get(values[-1], data[-1].kind)]
        first = 0 if always else min(born[v] for v in values)
        until = end if always else max(last[v] for v in values)
        size = program.aligned(data[0].bytes)
        named = data[0] if always or region == "activations" else data[-1]
        found.append(Lifetime(named.name, region, size, first, until, tuple(values)))
    found += list(workspaces(program))
    return sorted(found, key=lambda b: (b.region not in ALWAYS_LIVE, b.first, b.values))


def _results(program: Program) -> dict[int, str]:
    """The activations that gradients and outputs are windows on, and which of both."""
    roots = {program.storage(v): program.values[v].kind for v in program.outputs}
    return {v: kind for v, kind in roots.items() if program.values[v].kind == "activation"}


def workspaces(program: Program) -> Iterator[Lifetime]:
    """The workspace of each step that has one."""
    for index, step in enumerate(program.steps):
        size = workspace_bytes(program, step)
        if size:
            yield Lifetime(f"{step.name} (workspace)", "workspace", size, index, index)


def workspace_bytes(program: Program, step: Step) -> int:
    """Bytes of the workspace of a step, each array rounded up."""
    return sum(program.aligned(spec.bytes) for spec in step.workspace)


def last_reads(program: Program) -> dict[int, int]:
    """The last step at which the storage of each root value is still needed."""
    last: dict[int, int] = {}
    for index, step in enumerate(program.steps):
        for value in (*step.outputs, *step.inputs):
            if value is not None:
                last[program.storage(value)] = index
    for value in program.outputs:
        last[program.storage(value)] = max(len(program.steps) - 1, 0)
    return last


def in_place(program: Program, last: dict[int, int]) -> dict[int, int]:
    """For each output written over an input that dies there: the value whose buffer it takes."""
    shared = {v: d.alias for v, d in enumerate(program.values) if d.alias is not None}
    results = {program.storage(v) for v in program.outputs}
    for index, step in enumerate(program.steps):
        for root in donors(program, step, results) if step.may_inplace else ():
            if last[root] == index:
                shared[next(step.writes)] = root
                break
    return shared


def _owner(shared: dict[int, int], value: int) -> int:
    while value in shared:
        value = shared[value]
    return value
