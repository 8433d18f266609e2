"""The decision about the producer of a value, and the cost of recomputing it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from gradtool.planning.liveness import last_reads
from gradtool.planning.recompute.mirror import Decision, Why
from gradtool.planning.recompute.result import Work
from gradtool.planning.recompute.value_facts import Again, Facts
from gradtool.planning.schedule import Schedule, pruned
from gradtool.program import Program

UNREAD = "backward does not read it"


def decided(
    program: Program, root: int, facts: Facts, decision: Decision | None, schedule: Schedule | None
) -> Facts:
    """The facts with the decision about the producer, and the cost of recomputing it."""
    if facts.born is None:
        return replace(facts, obstacle="no step computes it: it is always alive")
    step = program.steps[facts.born]
    choice = next((c for c in (decision.choices if decision else ()) if c.step == step.name), None)
    again = set(pruned(program, schedule).recomputed) if schedule else set[int]()
    obstacle = _obstacle(program, root, facts.born)
    wanted = next((r.index for r in facts.readers if r.stage != "forward"), None)
    through = None
    if choice and choice.mirrored and (wanted is None or obstacle):
        rerun = again if facts.born in again else _mirrored(program, decision)
        through, wanted = _through(program, step.writes, rerun)
    elif wanted is None and not obstacle:
        through, wanted = _through(program, (root,), again)
    if wanted is None and not obstacle:
        obstacle = UNREAD
    return replace(
        facts,
        mirrored=choice.mirrored if choice else None,
        why=choice.why if choice else None,
        applied=facts.born in again,
        through=through,
        obstacle=obstacle,
        again=None if obstacle or wanted is None else _rerun(program, facts.born, wanted),
    )


def _obstacle(program: Program, root: int, producer: int) -> str | None:
    """Why a storage cannot or need not be computed again, whoever reads it."""
    if program.steps[producer].stage != "forward":
        return "it is computed in backward"
    if root in {program.storage(v) for v in program.outputs}:
        return "it is an output: it stays to the end"
    return None if program.steps[producer].recomputable else Why.ONCE.value


def _mirrored(program: Program, decision: Decision | None) -> set[int]:
    marks = decision.marks if decision else {}
    return {index for index, step in enumerate(program.steps) if marks.get(step.name)}


def _through(
    program: Program, begin: Iterable[int], again: Collection[int]
) -> tuple[str, int] | tuple[None, None]:
    """The first backward read of some storages and of results of `again` computed from them.

    The storage read and the index of its reader; nothing if backward reads none.
    """
    made = set(begin)
    for index, step in enumerate(program.steps):
        found = made.intersection(program.storage(v) for v in step.reads)
        if found and step.stage != "forward":
            return program.values[min(found)].name, index
        if found and index in again:
            made.update(step.writes)
    return None, None


def _rerun(program: Program, producer: int, first: int) -> Again:
    """The steps to run before step `first`, back to live storages or steps that run once."""
    makers = {v: i for i, step in enumerate(program.steps) for v in step.writes}
    last = last_reads(program)
    steps, held, waiting = {producer}, set[int](), [producer]
    while waiting:
        for value in program.steps[waiting.pop()].reads:
            root = program.storage(value)
            maker = makers.get(root)
            if maker is None or last[root] >= first or maker in steps:
                continue
            if program.steps[maker].recomputable:
                steps.add(maker)
                waiting.append(maker)
            else:
                held.add(root)
    order = sorted(steps)
    return Again(
        steps=tuple(program.steps[s].name for s in order),
        work=Work.of(program, order),
        held=tuple(program.values[v].name for v in sorted(held)),
        held_bytes=sum(program.aligned(program.values[v].bytes) for v in held),
    )
