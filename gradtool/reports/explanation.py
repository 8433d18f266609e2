"""Why a value is kept or computed again, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gradtool.planning.recompute.decision import UNREAD
from gradtool.text.units import format_bytes, format_count

if TYPE_CHECKING:
    from gradtool.planning.plan import Region
    from gradtool.planning.recompute.value_facts import Again, Facts

MOST = 12  # readers, values and steps that are listed by name
NOUNS: Mapping[Region, str] = MappingProxyType(
    {
        "parameters": "parameter",
        "state": "state",
        "constants": "constant",
        "inputs": "input",
        "activations": "activation",
        "backward temporaries": "backward temporary",
        "gradients": "gradient",
        "outputs": "output",
        "workspace": "workspace",
    }
)


def lines(facts: Facts) -> list[str]:
    """The facts about a value, a line each; people count steps from 1."""
    own = (_instance(facts), _window(facts), _life(facts), _place(facts))
    said = (*own, *_readers(facts), _decision(facts), *_cost(facts))
    return [f"{facts.value}: {_what(facts)}", *(f" {line}" for line in said if line)]


def document(facts: Facts) -> dict[str, Any]:
    """The same for machines: steps count from 0, sizes are bytes."""
    return {**asdict(facts), "why": facts.why.value if facts.why else None}


def _what(facts: Facts) -> str:
    noun = NOUNS[facts.region] if facts.region else facts.kind
    size = format_bytes(facts.bytes)
    if facts.producer is None:
        return f"{noun}, {size}, always alive"
    verb = "of" if facts.kind is None else "computed by"
    return f"{noun}, {size}, {verb} {facts.op} {facts.producer!r} ({facts.stage})"


def _instance(facts: Facts) -> str:
    return f"it is {facts.instance_of}, which a plan computes again" if facts.instance_of else ""


def _window(facts: Facts) -> str:
    if (facts.instance_of or facts.value) == facts.storage:
        return ""
    return f"it is a window on {facts.storage}, whose bytes these are"


def _life(facts: Facts) -> str:
    if facts.born is None or facts.last is None:
        return ""
    held = "is" if facts.at_peak else "is not"
    return (
        f"alive from step {facts.born + 1} to step {facts.last + 1}; it {held} alive at the peak "
        f"of keeping everything ({facts.peak_step})"
    )


def _place(facts: Facts) -> str:
    """The values in its place before and after it, and the name of the place in reports."""
    place = facts.shared
    if place is None:
        return ""
    others = [name for name in (place.name, *place.also) if name != facts.storage]
    return (
        f"its place is held from step {place.first + 1} to step {place.last + 1}, in turn with "
        f"{_listed(others)}; reports call it {place.name}"
    )


def _readers(facts: Facts) -> list[str]:
    shown = facts.readers[:MOST]
    found = [f"read by {r.op} {r.step!r} ({r.stage}, step {r.index + 1})" for r in shown]
    rest = len(facts.readers) - len(shown)
    if not found:
        return ["nobody reads it"] if facts.kind else []
    return [*found, f"read by {rest} more"] if rest else found


def _decision(facts: Facts) -> str:
    """The decision, unless the value itself makes it pointless: then `_cost` says why."""
    if facts.why is None or facts.obstacle == UNREAD:
        return ""
    if not facts.mirrored:
        target = f" for {facts.through}, which is computed again from it" if facts.through else ""
        return f"kept{target}: {facts.why.value}"
    if facts.obstacle and not facts.through:
        return ""
    if facts.through:
        does = "its step runs" if facts.applied else "its step may run"
        what = f"{does} again in backward, for {facts.through}"
    else:
        what = f"{'' if facts.applied else 'may be '}computed again in backward"
    applied = "applied" if facts.applied else "not applied, as that would not lower the peak"
    return f"{what}: {facts.why.value}; {applied}"


def _cost(facts: Facts) -> list[str]:
    if facts.again is None:
        return [f"computing it again: {facts.obstacle}"] if facts.obstacle else []
    return _price(facts.again)


def _price(again: Again) -> list[str]:
    unknown = f" and {again.work.unknown} steps of unknown cost" if again.work.unknown else ""
    count = len(again.steps)
    line = (
        f"computing it again would run {count} step{'s' if count > 1 else ''}, "
        f"{format_count(again.work.flops)} FLOPs{unknown}: {_listed(again.steps)}"
    )
    if not again.held:
        return [line]
    return [line, f"and keep {_listed(again.held)} ({format_bytes(again.held_bytes)})"]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
