"""What a plan holds, in parts."""

from __future__ import annotations

import re
from collections.abc import Callable

from gradtool.planning.plan import ALWAYS_LIVE, Plan
from gradtool.program import Program, Step

FRAGMENTATION = "fragmentation"  # bytes of the arena that no buffer holds at the peak step


def held(plan: Plan, what: str) -> dict[str, int]:
    """Bytes at the peak step by name of operator, phase, module or tensor."""
    parts: dict[str, int] = {}
    for buffer in plan.live(plan.peak_step):
        if what == "tensor":
            name = buffer.name
        elif buffer.region in ALWAYS_LIVE:
            name = buffer.region
        else:
            name = _KEYS[what](plan.program.steps[buffer.first])
        parts[name] = parts.get(name, 0) + int(buffer.bytes)
    return parts


def unsized(program: Program) -> dict[str, int]:
    """Results whose shape depends on data, counted by operator: they are in no plan."""
    found: dict[str, int] = {}
    for step in program.steps:
        count = sum(program.values[value].spec is None for value in step.writes)
        if count:
            found[step.op] = found.get(step.op, 0) + count
    return dict(sorted(found.items()))


def activation_bytes(plan: Plan) -> int:
    """The most that activations and workspaces take at any step, whatever else is alive."""
    from gradtool.planning.packing import load_profile

    own = (b for b in plan.buffers if b.region in ("activations", "workspace"))
    return int(load_profile(own, len(plan.program.steps)).max())


def module(step: Step) -> str:
    """The part of the model that a step is of: its forward node's name without the last part.

    Two levels at most; names are split at `/` and `.`.
    """
    parts = [part for part in re.split(r"[/.]", step.source or step.name) if part]
    return "/".join(parts[:-1][:2]) or "(top)"


_KEYS: dict[str, Callable[[Step], str]] = {
    "op": lambda step: step.op,
    "phase": lambda step: step.stage,
    "module": module,
}
