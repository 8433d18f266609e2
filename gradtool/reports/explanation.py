"""Why a value is kept or computed again, in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gradtool.planning.recompute.explain import UNREAD
from gradtool.text.units import format_bytes, format_count

if TYPE_CHECKING:
    from gradtool.planning.recompute.explain import Again, Facts

SCHEMA_VERSION = 1
MOST = 12  # readers and steps that are listed by name


def lines(facts: Facts) -> list[str]:
    """The facts about a value, a line each; people count steps from 1."""
    said = [f"{facts.value}: {_what(facts)}"]
    if facts.storage != facts.value:
        said.append(f" it is a window on {facts.storage}, whose bytes these are")
    said += [
        f" {line}"
        for line in (_life(facts), _place(facts), *_readers(facts), _decision(facts))
        if line
    ]
    return [*said, *(f" {line}" for line in _cost(facts))]


def document(facts: Facts) -> dict[str, Any]:
    """The same for machines: steps count from 0, sizes are bytes."""
    found = asdict(facts)
    found["why"] = facts.why.value if facts.why else None
    return {"schema_version": SCHEMA_VERSION, **found}


def _what(facts: Facts) -> str:
    size = format_bytes(facts.bytes)
    if facts.producer is None:
        return f"{facts.kind}, {size}, always alive"
    return f"{facts.kind}, {size}, computed by {facts.op} {facts.producer!r} ({facts.stage})"


def _life(facts: Facts) -> str:
    if facts.born is None or facts.last is None:
        return ""
    held = "is" if facts.at_peak else "is not"
    return (
        f"alive from step {facts.born + 1} to step {facts.last + 1}; it {held} alive at the peak "
        f"of keeping everything ({facts.peak_step})"
    )


def _place(facts: Facts) -> str:
    """The values that lie in its bytes before and after it, and what tables call all of them."""
    place = facts.shared
    if place is None:
        return ""
    names = [name for name in (place.name, *place.also) if name != facts.storage]
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    peak = f"alive at the peak as {place.name}" if place.at_peak else f"called {place.name}"
    return (
        f"in one place with {', '.join(names[:MOST])}{more}, in turn: held from step "
        f"{place.first + 1} to step {place.last + 1}, {peak}"
    )


def _readers(facts: Facts) -> list[str]:
    shown = facts.readers[:MOST]
    found = [f"read by {r.op} {r.step!r} ({r.stage}, step {r.index + 1})" for r in shown]
    rest = len(facts.readers) - len(shown)
    return [*found, f"read by {rest} more"] if rest else found or ["nobody reads it"]


def _decision(facts: Facts) -> str:
    if facts.why is None:
        return ""
    if not facts.mirrored:
        return f"kept: {facts.why.value}"
    if facts.obstacle == UNREAD:
        return ""
    target = f", for {facts.through}, which that reads" if facts.through else ""
    if facts.applied:
        return f"computed again in backward{target}: {facts.why.value}; applied"
    return (
        f"may be computed again in backward{target}: {facts.why.value}; not applied, as that would "
        "not lower the peak"
    )


def _cost(facts: Facts) -> list[str]:
    if facts.again is None:
        return [f"computing it again: {facts.obstacle}"] if facts.obstacle else []
    return _price(facts.again)


def _price(again: Again) -> list[str]:
    unknown = f" and {again.work.unknown} steps of unknown cost" if again.work.unknown else ""
    count = len(again.steps)
    line = (
        f"computing it again would run {count} step{'s' if count > 1 else ''}, "
        f"{format_count(again.work.flops)} FLOPs{unknown}: {', '.join(again.steps[:MOST])}"
    )
    line += f" and {count - MOST} more" if count > MOST else ""
    if not again.held:
        return [line]
    return [line, f"and keep {', '.join(again.held[:MOST])} ({format_bytes(again.held_bytes)})"]
