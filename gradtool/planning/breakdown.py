"""The bytes of a plan by operator, phase and module."""

from __future__ import annotations

from collections.abc import Callable

from gradtool.planning.plan import TEMPORARIES, Buffer, Plan, Region
from gradtool.program import Program, Step

COMPUTED: tuple[Region, ...] = ("activations", TEMPORARIES, "workspace")
TOP = "(top)"  # nodes of no part of the model
FRAGMENTATION = "fragmentation"  # bytes of the arena that no buffer holds at the peak step


def held(plan: Plan, what: str) -> dict[str, int]:
    """Bytes at the peak step by name of operator, phase, module or tensor."""
    parts: dict[str, int] = {}
    for buffer in plan.live(plan.peak_step):
        name = buffer.name if what == "tensor" else part(plan, buffer, what)
        parts[name] = parts.get(name, 0) + int(buffer.bytes)
    return parts


def part(plan: Plan, buffer: Buffer, what: str) -> str:
    """The operator, phase or module of a buffer's producer, else its region."""
    maker = plan.maker(buffer)
    return buffer.region if maker is None else _KEYS[what](maker)


def unsized(program: Program) -> dict[str, int]:
    """Results whose shape depends on data, counted by operator: they are in no plan."""
    found: dict[str, int] = {}
    for step in program.steps:
        count = sum(program.values[value].spec is None for value in step.writes)
        if count:
            found[step.op] = found.get(step.op, 0) + count
    return dict(sorted(found.items()))


def activation_bytes(plan: Plan) -> int:
    """The peak of activations, backward temporaries and workspaces together."""
    from gradtool.planning.packing import load_profile

    own = (span for span in plan.spans if span.region in COMPUTED)
    return int(load_profile(own, len(plan.program.steps)).max())


def module(step: Step) -> str:
    """The module that a step belongs to."""
    return step.module or TOP


_KEYS: dict[str, Callable[[Step], str]] = {
    "op": lambda step: step.op,
    "phase": lambda step: step.stage,
    "module": module,
}
