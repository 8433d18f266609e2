"""Plans over one arena: shared values lie at its start, at the same places in all of them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from gradtool.planning.plan import ALWAYS_LIVE, Buffer, Plan

SHARED = ("parameters", "state")

# What is shared, by name, one after the other from the start of the arena.
Layout = Mapping[str, Buffer]
# What lies inside of something shared, by its own name: the name of that, and bytes from its start.
Parts = Mapping[str, tuple[str, int]]
NO_PARTS: Parts = MappingProxyType({})


def extended(layout: Layout, plan: Plan, names: Container[str]) -> Layout:
    """A layout extended by a plan's parameters and state among `names`.

    New ones lie in the order in which a step is done with them: buffers final together lie
    together.
    """
    found = dict(layout)
    end = size(layout)
    program = plan.program
    written = {program.storage(v): i for i, s in enumerate(program.steps) for v in s.writes}
    new = [
        b for b in plan.buffers
        if b.region in SHARED and b.name in names and b.name not in found
    ]  # fmt: skip
    for buffer in sorted(new, key=lambda b: max(written.get(v, -1) for v in b.values)):
        found[buffer.name] = replace(buffer, offset=end, values=())
        end += buffer.bytes
    return found


def size(layout: Layout) -> int:
    """The bytes of a layout."""
    return sum(buffer.bytes for buffer in layout.values())


def laid_over(plan: Plan, layout: Layout, names: Container[str], parts: Parts = NO_PARTS) -> Plan:
    """The plan with shared values at their offsets in the layout, and everything else behind it.

    It shares the values among `names`, and holds all of the layout, even buffers without a reader.
    Its `parts` lie inside of that.
    """
    fixed = [b for b in plan.buffers if b.region in ALWAYS_LIVE]
    own = {
        b.name: b for b in fixed
        if b.region in SHARED and b.name in names and b.name in layout and b.name not in parts
    }  # fmt: skip
    last = max(len(plan.program.steps) - 1, 0)
    buffers = [
        own[name].moved(place.offset) if name in own else replace(place, last=last)
        for name, place in layout.items()
    ]
    end = size(layout)
    for buffer in fixed:
        if buffer.region in SHARED and buffer.name in parts:
            whole, start = parts[buffer.name]
            buffers.append(buffer.moved(layout[whole].offset + start))
        elif own.get(buffer.name) is not buffer:
            buffers.append(buffer.moved(end))
            end += buffer.bytes
    shift = end - sum(b.bytes for b in fixed)
    moving = (b for b in plan.buffers if b.region not in ALWAYS_LIVE)
    buffers += [b.moved(b.offset + shift) if shift else b for b in moving]
    return replace(
        plan, buffers=tuple(buffers), peak=plan.peak + shift, peak_live=plan.peak_live + shift
    )


def together(plans: Sequence[tuple[Plan, Container[str]]]) -> int:
    """The bytes of an arena for all of these plans, one after the other in use.

    Beside each are the names of its shared values.
    """
    layout: Layout = {}
    for plan, names in plans:
        layout = extended(layout, plan, names)
    return max((laid_over(plan, layout, names).peak for plan, names in plans), default=0)
