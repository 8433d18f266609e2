"""What is to be said of one value: who reads it, how long it lives, what it takes to run again."""

from __future__ import annotations

from dataclasses import dataclass

from gradtool.planning.plan import Region
from gradtool.planning.recompute.mirror import Why
from gradtool.planning.recompute.result import Work
from gradtool.program import Kind, Stage


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
class Place:
    """Where a value lies when everything is kept: what that is called, and from when to when held.

    `also` are the other values that lie there, before or after the one that it is called by;
    `at_peak` says whether it is held at the busiest step.
    """

    name: str
    first: int
    last: int
    also: tuple[str, ...]
    at_peak: bool


@dataclass(frozen=True)
class Facts:
    """What is to be said of one value.  Indices are places in the order of the file.

    `value` is its name; step `producer`, of operator `op` and `stage`, computes it, and `readers`
    read it.  `bytes` are those of `storage`: the value itself, unless it is a view.  `instance_of`
    is the value that a plan computes again under this name, None if that is none's.  `region` is
    the one that it counts to, None where it is in no plan; `kind` is None for the workspace of a
    step.  `born` and `last` are None where no step computes it (parameters and inputs are always
    alive).  `at_peak` says whether it is alive at the busiest step when everything is kept,
    `peak_step` which one that is.

    `mirrored` and `why` are the decision about its producer, None where none was taken; `applied`
    whether the schedule runs the producer again.  `through` is what backward reads where it does
    not read the value itself: the producer runs again for that.  `again` is None where that is
    impossible or pointless, and `obstacle` then says why.  `shared` is None where the value has its
    place alone.
    """

    value: str
    storage: str
    kind: Kind | None
    region: Region | None
    bytes: int
    producer: str | None
    op: str | None
    stage: Stage | None
    born: int | None
    last: int | None
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
