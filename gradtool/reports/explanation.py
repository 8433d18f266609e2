"""Why a value is kept or computed again, in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

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
    said += [f" {line}" for line in (_life(facts), *_readers(facts), _decision(facts)) if line]
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
    applied = "applied" if facts.applied else "not applied, as that would not lower the peak"
    return f"computed again in backward: {facts.why.value}; {applied}"


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
