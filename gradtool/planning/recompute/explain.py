"""Explanation of residuals: the readers of a value, its lifetime, the cost of recomputing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradtool.errors import UsageError
from gradtool.planning.liveness import (
    Lifetime,
    called_at,
    first_instance,
    last_reads,
    lifetimes,
    workspace_bytes,
    workspace_name,
)
from gradtool.planning.packing import load_profile
from gradtool.planning.plan import ALWAYS_LIVE, Region
from gradtool.planning.recompute.decision import decided
from gradtool.planning.recompute.mirror import Decision
from gradtool.planning.recompute.value_facts import Facts, Place, Reader
from gradtool.planning.schedule import Schedule
from gradtool.planning.storage_occupancy import Tenants
from gradtool.program import Program
from gradtool.text.words import suggest


def explain(
    program: Program,
    tensor: str,
    *,
    decision: Decision | None = None,
    schedule: Schedule | None = None,
) -> Facts:
    """The facts about the value named `tensor`, of a mirror decision and a schedule if given.

    Workspaces go by the names that plans give them.  A recomputed value is explained by the value
    that it is an instance of.

    Raises:
        UsageError: the program has no such value.
    """
    needed, peak = _kept(program)
    values = {value.name: number for number, value in enumerate(program.values)}
    rooms = {
        workspace_name(step.name): index
        for index, step in enumerate(program.steps)
        if workspace_bytes(program, step)
    }
    first = tensor if tensor in values or tensor in rooms else first_instance(tensor)
    if first in values:
        root = program.storage(values[first])
        facts = decided(program, root, _life(program, root, needed, peak), decision, schedule)
    elif first in rooms:
        facts = _workspace(program, rooms[first], peak)
    else:
        raise UsageError(f"no value {tensor!r}{suggest(tensor, values)}")
    return replace(facts, value=tensor, instance_of=None if first == tensor else first)


def _kept(program: Program) -> tuple[list[Lifetime], int]:
    """The lifetimes without recompute, under the names of the plan, and the busiest step."""
    needed = lifetimes(program)
    peak = int(load_profile(needed, len(program.steps)).argmax())
    return called_at(program, needed, peak), peak


def _workspace(program: Program, index: int, peak: int) -> Facts:
    step = program.steps[index]
    name = workspace_name(step.name)
    return Facts(
        value=name,
        storage=name,
        kind=None,
        region="workspace",
        bytes=workspace_bytes(program, step),
        producer=step.name,
        op=step.op,
        stage=step.stage,
        born=index,
        last=index,
        readers=(),
        peak_step=program.steps[peak].name,
        at_peak=index == peak,
    )


def _life(program: Program, root: int, needed: Sequence[Lifetime], peak: int) -> Facts:
    """The producer, readers and lifetime of a storage."""
    value = program.values[root]
    producer = next((i for i, s in enumerate(program.steps) if root in s.writes), None)
    step = None if producer is None else program.steps[producer]
    last = None if producer is None else last_reads(program)[root]
    held = next((each for each in needed if root in each.values), None)
    place = _place(program, held, peak)
    at_peak = producer is None or (last is not None and producer <= peak <= last)
    if held is not None and held.region not in ALWAYS_LIVE and held.first <= peak <= held.last:
        at_peak = held.values[held.called] == root
    return Facts(
        value=value.name,
        storage=value.name,
        kind=value.kind,
        region=_region(program, root, held),
        bytes=program.aligned(value.bytes) if held is None else held.bytes,
        producer=step.name if step else None,
        op=step.op if step else None,
        stage=step.stage if step else None,
        born=producer,
        last=last,
        readers=tuple(
            Reader(step.name, step.op, step.stage, i)
            for i, step in enumerate(program.steps)
            if any(program.storage(v) == root for v in step.reads)
        ),
        peak_step=program.steps[peak].name if program.steps else "",
        at_peak=at_peak,
        shared=place,
    )


def _place(program: Program, held: Lifetime | None, peak: int) -> Place | None:
    if held is None or len(held.values) < 2:
        return None
    also = tuple(program.values[v].name for v in held.values if v != held.values[held.called])
    return Place(held.name, held.first, held.last, also, held.first <= peak <= held.last)


def _region(program: Program, root: int, held: Lifetime | None) -> Region | None:
    """The region of a storage while this value lies in it."""
    if held is None or held.region in ALWAYS_LIVE:
        return None if held is None else held.region
    return Tenants(program).region(held.values, held.values.index(root))
