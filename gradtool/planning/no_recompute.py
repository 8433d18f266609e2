"""The plan without recompute, in the order of the file."""

from __future__ import annotations

import numpy as np

from gradtool.planning import liveness
from gradtool.planning.liveness import Lifetime, called_at, lifetimes
from gradtool.planning.packing import load_profile, place
from gradtool.planning.plan import ALWAYS_LIVE, Plan
from gradtool.program import Program


def no_recompute(program: Program, name: str = "keep") -> Plan:
    """Plan `program` in its own order.

    Parameters, constants and inputs lie one after the other at the start of the arena; everything
    else is packed behind them.
    """
    return _packed(name, program, lifetimes(program))


def resized(plan: Plan, program: Program) -> Plan:
    """The plan of a program that differs from that of a plan without recompute in sizes alone.

    Its steps, views and donations are the same, and so are its buffers, but for their bytes.
    """
    return _packed(plan.name, program, liveness.resized(plan.buffers, program))


def _packed(name: str, program: Program, needed: list[Lifetime]) -> Plan:
    profile = load_profile(needed, len(program.steps))
    needed = called_at(program, needed, int(profile.argmax()))
    fixed = [b for b in needed if b.region in ALWAYS_LIVE]
    moving = [b for b in needed if b.region not in ALWAYS_LIVE]
    starts = np.cumsum([0, *(b.bytes for b in fixed)]).tolist()
    packed = place(moving)
    buffers = [
        b.placed(offset)
        for b, offset in zip(
            (*fixed, *moving),
            (*starts[:-1], *(starts[-1] + o for o in packed.offsets)),
            strict=True,
        )
    ]
    return Plan(
        name=name,
        program=program,
        buffers=tuple(buffers),
        peak=starts[-1] + packed.size,
        peak_live=int(profile.max()),
        scratch=max((s.scratch_bytes for s in program.steps), default=0),
        peak_step=int(profile.argmax()),
    )
