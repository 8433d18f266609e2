"""Liveness: the buffers of a program and the steps from which to which each is held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gradtool.planning.plan import ALWAYS_LIVE, Buffer, Region
from gradtool.planning.storage_occupancy import REGIONS, Tenants
from gradtool.program import Program, Step
from gradtool.program.in_place import donors

_WORKSPACE = " (workspace)"


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Bytes held from step `first` to step `last`, both included."""

    name: str
    region: Region
    bytes: int
    first: int
    last: int
    values: tuple[int, ...] = ()
    called: int = 0
    turn: int | None = None
    regions: tuple[Region, ...] = ()

    @classmethod
    def of(cls, buffer: Buffer, size: int) -> Lifetime:
        """That of a buffer, of so many bytes."""
        lasting = (buffer.first, buffer.last, buffer.values)
        own = (buffer.called, buffer.turn, buffer.regions)
        return cls(buffer.name, buffer.region, size, *lasting, *own)

    def placed(self, offset: int) -> Buffer:
        """The buffer at an offset."""
        lasting = (self.first, self.last, self.values)
        own = (self.called, self.turn, self.regions)
        return Buffer(self.name, self.region, self.bytes, offset, *lasting, *own)


def lifetimes(program: Program) -> list[Lifetime]:
    """One lifetime per buffer: always-live ones first, then in order of first use.

    A step holds its reads, its writes and its workspace together, but for an output that an
    operator writes in place.  Views keep their storage alive; outputs live to the end.  Next values
    of parameters and state lie over the old ones where `gradtool.program.donation` lets them.  A
    shared storage is called by its longest occupant.
    """
    last = last_reads(program)
    shared = in_place(program, last)
    members: dict[int, list[int]] = {}
    for value, datum in enumerate(program.values):
        if datum.spec is not None and datum.view is None:
            members.setdefault(_owner(shared, value), []).append(value)
    born = {v: i for i, step in enumerate(program.steps) for v in step.outputs}
    end = max(len(program.steps) - 1, 0)
    tenants = Tenants(program)
    found = []
    for values in members.values():
        data = [program.values[v] for v in values]
        if data[0].kind == "host" or not data[0].bytes:
            continue
        always = REGIONS[data[0].kind] in ALWAYS_LIVE
        first = 0 if always else min(born[v] for v in values)
        until = end if always else max(last[v] for v in values)
        called = 0 if always else tenants.longest(values, until)
        region = REGIONS[data[0].kind] if always else tenants.region(values, called)
        size = program.aligned(data[0].bytes)
        name = data[called].name
        turn, regions = (None if always else tenants.turn(values)) or (None, ())
        found.append(
            Lifetime(name, region, size, first, until, tuple(values), called, turn, regions)
        )
    return _in_order([*found, *workspaces(program)])


def _in_order(found: Iterable[Lifetime]) -> list[Lifetime]:
    return sorted(found, key=lambda b: (b.region not in ALWAYS_LIVE, b.first, b.values))


def called_at(program: Program, needed: Iterable[Lifetime], step: int) -> list[Lifetime]:
    """The lifetimes, each held at `step` named after its occupant then, others as ever."""
    tenants, found = Tenants(program), []
    for each in needed:
        if len(each.values) > 1 and each.region not in ALWAYS_LIVE:
            is_held = each.first <= step <= each.last
            called = (tenants.at if is_held else tenants.longest)(
                each.values, step if is_held else each.last
            )
            if called != each.called:
                name = program.values[each.values[called]].name
                region = tenants.region(each.values, called)
                each = replace(each, name=name, region=region, called=called)  # noqa: PLW2901
        found.append(each)
    return found


def resized(buffers: Iterable[Buffer], program: Program) -> list[Lifetime]:
    """The lifetimes of the buffers of a program that differs from `program` in sizes alone."""
    values = program.values
    found = [
        Lifetime.of(b, program.aligned(values[b.values[0]].bytes)) for b in buffers if b.values
    ]
    return _in_order([*found, *workspaces(program)])


def workspaces(program: Program) -> Iterator[Lifetime]:
    """The workspaces by step."""
    for index, step in enumerate(program.steps):
        size = workspace_bytes(program, step) if step.workspace else 0
        if size:
            yield Lifetime(workspace_name(step.name), "workspace", size, index, index)


def workspace_name(step: str) -> str:
    """The name of the workspace of a step."""
    return f"{step}{_WORKSPACE}"


def first_instance(name: str) -> str:
    """The first instance of a buffer by its name, or the workspace of the first of a step."""
    from gradtool.planning.schedule import original

    step = name.removesuffix(_WORKSPACE)
    return original(step) if step == name else workspace_name(original(step))


def always_live(program: Program) -> int:
    """Bytes alive at every step: parameters, state, constants and inputs."""
    return sum(
        program.aligned(value.bytes)
        for value in program.values
        if value.spec is not None
        and value.view is None
        and value.kind != "host"
        and REGIONS[value.kind] in ALWAYS_LIVE
    )


def workspace_bytes(program: Program, step: Step) -> int:
    """Bytes of the workspace of a step, each array rounded up."""
    return sum(program.aligned(spec.bytes) for spec in step.workspace)


def last_reads(program: Program) -> dict[int, int]:
    """The last step that needs the storage of each root value."""
    last: dict[int, int] = {}
    for index, step in enumerate(program.steps):
        for value in (*step.outputs, *step.inputs):
            if value is not None:
                last[program.storage(value)] = index
    for value in program.outputs:
        last[program.storage(value)] = max(len(program.steps) - 1, 0)
    return last


def in_place(program: Program, last: dict[int, int]) -> dict[int, int]:
    """For each output written in place: the value whose buffer it takes."""
    shared = {v: d.alias for v, d in enumerate(program.values) if d.alias is not None}
    results = {program.storage(v) for v in program.outputs}
    for index, step in enumerate(program.steps):
        # Few steps are last readers; the fit is checked for these alone.
        read = (step.inputs[slot] for slot in step.may_inplace if slot < len(step.inputs))
        if any(v is not None and last[program.storage(v)] == index for v in read):
            for root in donors(program, step, results):
                if last[root] == index:
                    shared[next(step.writes)] = root
                    break
    return shared


def _owner(shared: dict[int, int], value: int) -> int:
    while value in shared:
        value = shared[value]
    return value
