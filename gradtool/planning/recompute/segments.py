"""Recompute by segments: checkpoints cut the forward part, and the steps between them run again.

Source: the recompute pass of Paddle (`RecomputeOptimizer`) and Chen et al. 2016
(arXiv:1604.06174), section 3.  We differ in that the clones of a segment are made one by one, each
just before the first backward step that needs it, instead of all at once; and that outputs at
random are always held, where Paddle draws them again from a held seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradtool.errors import UsageError
from gradtool.planning.recompute.late_clones import late
from gradtool.planning.recompute.result import Outcome, outcome
from gradtool.planning.schedule import RECOMPUTED, Schedule
from gradtool.planning.simulate import Simulator
from gradtool.program import Program
from gradtool.text.words import some, suggest


@dataclass(frozen=True)
class Segments:
    """Segments of the forward part, by their last steps `ends` in order.

    `checkpoints` are the storages meant to be held; others read by later steps are as well.  Of the
    segments all are recomputed, or `only` some.
    """

    ends: tuple[int, ...]
    checkpoints: tuple[int, ...]
    only: frozenset[int] | None = None


@dataclass(frozen=True)
class Residuals:
    """A value read by later segments without being a checkpoint; its size in bytes."""

    value: str
    bytes: int
    segment: int


@dataclass(frozen=True)
class Segmented:
    """The outcome of recompute by segments.

    `ends` are the last steps of the segments, `checkpoints` the values held there, and `residuals`
    those that are held as well because a later step reads them: better checkpoints would remove
    these.  Steps after the last checkpoint are not recomputed.
    """

    outcome: Outcome
    ends: tuple[int, ...]
    checkpoints: tuple[str, ...]
    residuals: tuple[Residuals, ...]
    notes: tuple[str, ...] = ()


def checkpointed(program: Program, names: Sequence[str]) -> Segmented:
    """Segments between named forward values, in whatever order they are named.

    Raises:
        UsageError: a name is no forward value, or lies on no path to the loss.
    """
    makers = {v: i for i, step in enumerate(program.steps) for v in step.writes}
    on_path = _on_path(program)
    found: dict[int, int] = {}
    for name in names:
        root = _forward_value(program, makers, name)
        if makers[root] not in on_path:
            raise UsageError(f"checkpoint {name!r} is not on the path: the loss does not read it")
        found[root] = makers[root]
    if not found:
        raise UsageError("no checkpoints are given")
    ends = tuple(sorted(set(found.values())))
    checkpoints = tuple(sorted(found, key=lambda root: (found[root], root)))
    return segmented(Simulator.of(program), Segments(ends, checkpoints))


def segmented(simulator: Simulator, segments: Segments, notes: Sequence[str] = ()) -> Segmented:
    """Evaluate recompute by some segments."""
    program, meant = simulator.program, set(segments.checkpoints)
    segment = segment_of(program, segments.ends)
    held = held_values(program, segment)
    residuals = tuple(
        Residuals(program.values[v].name, program.aligned(program.values[v].bytes), number)
        for step, number in segment.items()
        for v in program.steps[step].writes
        if v in held and v not in meant
    )
    return Segmented(
        outcome=outcome(simulator, schedule_of(program, segments)),
        ends=segments.ends,
        checkpoints=tuple(program.values[v].name for v in segments.checkpoints),
        residuals=residuals,
        notes=tuple(notes),
    )


def schedule_of(program: Program, segments: Segments) -> Schedule:
    """The schedule in which backward recomputes the values not held by segments."""
    segment = segment_of(program, segments.ends)
    held = held_values(program, segment) | set(segments.checkpoints)
    again = {
        step: f"{RECOMPUTED}_{number}"
        for step, number in segment.items()
        if (segments.only is None or number in segments.only)
        and program.steps[step].recomputable
        and any(v not in held for v in program.steps[step].writes)
    }
    return late(program, again, held)


def segment_of(program: Program, ends: Sequence[int]) -> dict[int, int]:
    """The segment of each forward step, by number; the rest is in none."""
    found: dict[int, int] = {}
    first = 0
    for number, end in enumerate(ends):
        for step in range(first, end + 1):
            if program.steps[step].stage == "forward":
                found[step] = number
        first = end + 1
    return found


def held_values(program: Program, segment: dict[int, int]) -> set[int]:
    """The storages written in a segment and read by a forward step outside of it."""
    makers = {v: s for s in segment for v in program.steps[s].writes}
    reads = Simulator.of(program).reads
    return {
        root
        for index, step in enumerate(program.steps) if step.stage == "forward"
        for root in reads[index]
        if root in makers and segment[makers[root]] != segment.get(index)
    }  # fmt: skip


def _forward_value(program: Program, makers: dict[int, int], name: str) -> int:
    """The storage of a value computed by a forward step."""
    numbers = [i for i, datum in enumerate(program.values) if datum.name == name]
    if not numbers:
        forward = (program.values[v].name for v, i in makers.items()
                   if program.steps[i].stage == "forward")  # fmt: skip
        raise UsageError(f"checkpoint {name!r} does not exist{suggest(name, forward)}")
    root = program.storage(numbers[0])
    maker = makers.get(root)
    if maker is None or program.steps[maker].stage != "forward":
        raise UsageError(
            f"checkpoint {name!r} is no forward value: {_nature(program, root, maker)}"
        )
    return root


def _nature(program: Program, root: int, maker: int | None) -> str:
    if maker is None:
        return f"no step computes it, it is of kind {program.values[root].kind}"
    return f"it is computed in the {program.steps[maker].stage} part"


def _on_path(program: Program) -> set[int]:
    """The steps that the loss depends on; without a loss, that any output does."""
    makers = {v: i for i, step in enumerate(program.steps) for v in step.writes}
    results = program.outputs if program.loss is None else (program.loss,)
    waiting = [makers[r] for v in results if (r := program.storage(v)) in makers]
    found = set(waiting)
    while waiting:
        for value in program.steps[waiting.pop()].reads:
            source = makers.get(program.storage(value))
            if source is not None and source not in found:
                found.add(source)
                waiting.append(source)
    return found


def crossing_line(found: Segmented) -> str | None:
    """One line that lists the residuals beside the checkpoints, if there are any."""
    if not found.residuals:
        return None
    names = some(c.value for c in found.residuals)
    return f"held beside the checkpoints: {names} (better checkpoints would remove these)"
