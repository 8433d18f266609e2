"""The facts of one value: its readers, its lifetime, the cost of recomputing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gradtool.planning.plan import Region
from gradtool.planning.recompute.mirror import Why
from gradtool.planning.recompute.result import Work
from gradtool.program import Kind, Stage
from gradtool.text.json_schema import Count


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of a value; `index` is its place in the order of the file."""

    step: str
    op: str
    stage: Stage
    index: Count


@dataclass(frozen=True)
class Again:
    """The cost of recomputing a value just before its first backward reader.

    Other reads of these steps are alive there anyway, or in `held`.
    """

    steps: Annotated[tuple[str, ...], "Those that would run again, in order."]
    work: Work
    held: Annotated[tuple[str, ...], "Values kept longer for it."]
    held_bytes: Count


@dataclass(frozen=True, slots=True)
class Place:
    """The buffer of a value without recompute: its name and lifetime.

    `at_peak` says whether it is held at the busiest step.
    """

    name: Annotated[str, "Its name in reports: the occupant at the peak."]
    first: Count
    last: Count
    also: Annotated[tuple[str, ...], "The other values."]
    at_peak: bool


@dataclass(frozen=True)
class Facts:
    """The facts of one value.  Indices are places in the order of the file, from 0.

    Attributes:
        value: its name.
        storage: the value whose bytes these are; another one if this is a view.
        kind: null for the workspace of a step.
        region: what reports count it to; null where it is in no plan.
        bytes: those of the storage.
        producer: the step that computes it; null where none does, and it is always alive.
        op: the operator of that step.
        stage: the stage of that step.
        born: the index of that step; steps count from 0.
        last: the index of the last step that holds it.
        readers: the steps that read it.
        peak_step: the busiest step when everything is kept.
        at_peak: whether it is alive then.
        mirrored: the decision about the producer; null where nothing was decided.
        why: the reason of that decision.
        applied: whether the plan runs its step again.
        again: what computing it again would take; null where it is impossible or pointless.
        obstacle: why it cannot be computed again.
        through: what backward reads where it does not read the value: its step runs again for that.
        shared: its place, where other values lie in it before or after.
        instance_of: the value that a plan computes again under this name.
    """

    value: str
    storage: str
    kind: Kind | None
    region: Region | None
    bytes: Count
    producer: str | None
    op: str | None
    stage: Stage | None
    born: Count | None
    last: Count | None
    readers: tuple[Reader, ...]
    peak_step: str
    at_peak: bool
    mirrored: bool | None = None
    why: Why | None = None
    applied: bool = False
    again: Again | None = None
    obstacle: str | None = None
    through: str | None = None
    shared: Place | None = None
    instance_of: str | None = None
