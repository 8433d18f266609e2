"""Plans over one arena: what they share lies at its start, at the same places in all of them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from gradtool.planning.plan import ALWAYS_LIVE, Buffer, Plan

SHARED = ("parameters", "state")

# What is shared, by name, one after the other from the start of the arena.
Layout = Mapping[str, Buffer]


def extended(layout: Layout, plan: Plan, names: Container[str]) -> Layout:
    """A layout that also has what a plan holds of the parameters and state among `names`."""
    found = dict(layout)
    end = size(layout)
    for buffer in plan.buffers:
        if buffer.region in SHARED and buffer.name in names and buffer.name not in found:
            found[buffer.name] = replace(buffer, offset=end, values=())
            end += buffer.bytes
    return found


def size(layout: Layout) -> int:
    """The bytes that a layout takes."""
    return sum(buffer.bytes for buffer in layout.values())


def laid_over(plan: Plan, layout: Layout) -> Plan:
    """The plan with shared values where the layout has them, and everything else behind it.

    It holds all of the layout, also what no step of it reads.
    """
    fixed = [b for b in plan.buffers if b.region in ALWAYS_LIVE]
    own = {b.name: b for b in fixed if b.region in SHARED and b.name in layout}
    last = max(len(plan.program.steps) - 1, 0)
    buffers = [
        replace(own[name], offset=place.offset) if name in own else replace(place, last=last)
        for name, place in layout.items()
    ]
    end = size(layout)
    for buffer in fixed:
        if own.get(buffer.name) is not buffer:
            buffers.append(replace(buffer, offset=end))
            end += buffer.bytes
    shift = end - sum(b.bytes for b in fixed)
    moving = (b for b in plan.buffers if b.region not in ALWAYS_LIVE)
    buffers += [replace(b, offset=b.offset + shift) for b in moving]
    return replace(
        plan,
        buffers=tuple(buffers),
        peak=plan.peak + shift,
        peak_live=plan.peak_live + shift,
    )


def together(plans: Sequence[Plan], names: Container[str]) -> int:
    """The bytes of an arena in which all of these plans lie, one after the other in use."""
    layout: Layout = {}
    for plan in plans:
        layout = extended(layout, plan, names)
    return max((laid_over(plan, layout).peak for plan in plans), default=0)
