"""Why a value is kept: who reads it, how long it lives, what computing it again would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradtool.errors import UsageError
from gradtool.planning.liveness import called_at, last_reads, lifetimes
from gradtool.planning.recompute.mirror import Decision, Why
from gradtool.planning.recompute.outcome import Work
from gradtool.planning.schedule import Schedule, pruned
from gradtool.planning.simulate import Simulator
from gradtool.program import Kind, Program, Stage
from gradtool.text.words import suggest

UNREAD = "backward does not read it"


@dataclass(frozen=True, slots=True)
class Reader:
    """A step that reads a value; `index` is its place in the order of the file."""

    step: str
    op: str
    stage: Stage
    index: int


@dataclass(frozen=True)
class Again:
    """What it would take to compute a value again just before its first backward reader.

    `steps` are those that would have to run, in order; what they read beside is alive there anyway,
    or in `held`, which would have to be kept longer: `held_bytes` in all.
    """

    steps: tuple[str, ...]
    work: Work
    held: tuple[str, ...]
    held_bytes: int


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a value lies when everything is kept: what that is called, and from when to when held.

    `also` are the other values that lie there, before or after the one that it is called by.
    """

    name: str
    first: int
    last: int
    also: tuple[str, ...]
    at_peak: bool


@dataclass(frozen=True)
class Facts:
    """What is to be said of one value.  Indices are places in the order of the file.

    `storage` is the value whose bytes these are: itself, unless it is a view.  `born` and `last`
    are None where no step computes it (parameters and inputs are always alive).  `at_peak` says
    whether it is alive at the busiest step when everything is kept, `peak_step` which one that is.
    `mirrored` and `why` are the decision about its producer, None where none was taken; `applied`
    whether the schedule runs the producer again.  `through` is what backward reads where it does
    not read the value itself, which is computed again only for that.  `again` is None where that is
    impossible or pointless, and `obstacle` then says why.  `shared` is None where the value has its
    storage alone.
    """

    value: str
    storage: str
    kind: Kind
    bytes: int
    producer: str | None
    op: str | None
    stage: Stage | None
    born: int | None
    last: int | None
    readers: tuple[Reader, ...]
    peak_step: str
    at_peak: bool
    mirrored: bool | None
    why: Why | None
    applied: bool
    again: Again | None
    obstacle: str | None
    through: str | None = None
    shared: Storage | None = None


def explain(
    program: Program,
    tensor: str,
    *,
    decision: Decision | None = None,
    schedule: Schedule | None = None,
) -> Facts:
    """The facts about the value named `tensor`, of a mirror decision and a schedule if given.

    Raises:
        UsageError: the program has no such value.
    """
    names: Mapping[str, int] = {datum.name: i for i, datum in enumerate(program.values)}
    if tensor not in names:
        raise UsageError(f"no value {tensor!r}{suggest(tensor, names)}")
    root = program.storage(names[tensor])
    producer = next((i for i, s in enumerate(program.steps) if root in s.writes), None)
    readers = _readers(program, root)
    last = last_reads(program).get(root)
    profile = Simulator(program).profile(range(len(program.steps)))
    peak = max(range(len(profile)), key=lambda i: (profile[i], -i), default=0)
    held = (-1 if producer is None else producer, -1 if last is None else last)
    shared = _shared(program, root, peak)
    step = None if producer is None else program.steps[producer]
    choices = {choice.step: choice for choice in (decision.choices if decision else ())}
    choice = choices.get(step.name) if step else None
    marks = decision.marks if decision else {}
    through = _through(program, root, marks) if marks and not _first(readers) else None
    wanted = readers if through is None else _readers(program, through)
    again, obstacle = _again(program, root, producer, _first(wanted))
    return Facts(
        value=tensor,
        storage=program.values[root].name,
        kind=program.values[root].kind,
        bytes=program.aligned(program.values[root].bytes),
        producer=step.name if step else None,
        op=step.op if step else None,
        stage=step.stage if step else None,
        born=producer,
        last=None if producer is None else last,
        readers=readers,
        peak_step=program.steps[peak].name if program.steps else "",
        at_peak=producer is None or _lies_there(shared, program.values[root].name, held, peak),
        mirrored=choice.mirrored if choice else None,
        why=choice.why if choice else None,
        applied=schedule is not None and producer in pruned(program, schedule).recomputed,
        again=again,
        obstacle=obstacle,
        through=None if through is None else program.values[through].name,
        shared=shared,
    )


def _readers(program: Program, root: int) -> tuple[Reader, ...]:
    return tuple(
        Reader(step.name, step.op, step.stage, i)
        for i, step in enumerate(program.steps)
        if any(program.storage(v) == root for v in step.reads)
    )


def _first(readers: Sequence[Reader]) -> Reader | None:
    """The first that is not of forward."""
    return next((r for r in readers if r.stage != "forward"), None)


def _through(program: Program, root: int, marks: Mapping[str, bool]) -> int | None:
    """The first storage that backward reads of those that mirrored steps make from this one."""
    made, found = {root}, list[tuple[int, int]]()
    for step in program.steps:
        reads = {program.storage(v) for v in step.reads}
        if step.stage == "forward" and marks.get(step.name) and reads & made:
            made.update(step.writes)
    for value in made:
        if (reader := _first(_readers(program, value))) is not None:
            found.append((reader.index, value))
    return min(found)[1] if found else None


def _shared(program: Program, root: int, peak: int) -> Storage | None:
    """The storage that several values share, this one among them."""
    for each in called_at(program, lifetimes(program), peak):
        if root in each.values and len(each.values) > 1:
            names = [program.values[v].name for v in each.values]
            also = tuple(name for name in names if name != each.name)
            held = each.first <= peak <= each.last
            return Storage(each.name, each.first, each.last, also, held)
    return None


def _lies_there(shared: Storage | None, name: str, held: tuple[int, int], peak: int) -> bool:
    """Whether a value that is needed from step to step lies in its storage at the peak."""
    if shared is not None and shared.at_peak:
        return shared.name == name
    return held[0] <= peak <= held[1]


def _again(
    program: Program, root: int, producer: int | None, first: Reader | None
) -> tuple[Again | None, str | None]:
    """What computing a storage again would take, or why there is no point."""
    if producer is None:
        return None, "no step computes it: it is always alive"
    if program.steps[producer].stage != "forward":
        return None, "it is computed in backward"
    if root in {program.storage(v) for v in program.outputs}:
        return None, "it is an output: it stays to the end"
    if not program.steps[producer].recomputable:
        return None, Why.ONCE.value
    if first is None:
        return None, UNREAD
    return _rerun(program, producer, first.index), None


def _rerun(program: Program, producer: int, first: int) -> Again:
    """The steps to run before step `first`, back to what is alive there or may not run twice."""
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
