"""A run of the gate, ready to be told, and the sentences shared by all media."""

from __future__ import annotations

from dataclasses import dataclass

from gradtool.check.thresholds import format_amount
from gradtool.check.verdicts import Change, Judged
from gradtool.text.names import shorten
from gradtool.text.units import format_percent
from gradtool.text.words import count

LONGEST = 200  # characters of a name or a reason
SHOWN = 12  # tensors and operators below a failure
_TINY = 0.0005  # a share that a percentage shows as nothing


@dataclass(frozen=True)
class GateRun:
    """The verdicts, and the path of their configuration for links.

    `base` is the revision compared with, empty where baselines are.
    """

    judged: tuple[Judged, ...]
    config: str
    base: str = ""

    @property
    def failed(self) -> tuple[Judged, ...]:
        """The cases rejected by the gate."""
        return tuple(each for each in self.judged if each.failed)


def deciding(judged: Judged) -> Change | None:
    """The metric shown for the verdict: a broken one, else the first."""
    return judged.changes[0] if judged.changes else None


def change(found: Change) -> str:
    """The growth of a metric: in %, or in its unit if that shows nothing."""
    if found.baseline is None or not found.delta:
        return ""
    if not found.baseline or abs(found.delta) < _TINY * found.baseline:
        return f"{'+' if found.delta > 0 else ''}{format_amount(found.metric, found.delta)}"
    return format_percent(found.delta / found.baseline, signed=True)


def sentence(found: Change) -> str:
    """A metric that breaks rules, in words."""
    now = format_amount(found.metric, found.now)
    if found.baseline is None:
        return f"{found.metric} is {now}: {'; '.join(found.broken)}"
    before = format_amount(found.metric, found.baseline)
    grown = change(found)
    said = f"{before} → {now} ({grown})" if grown else now
    return f"{found.metric} {said}: {'; '.join(found.broken)}"


def explanation(judged: Judged) -> list[str]:
    """Why a case has its verdict, a sentence each; names are shortened, and raw."""
    sentences = [sentence(found) for found in judged.changes if found.broken]
    return [*sentences, *(shorten(reason, 10 * LONGEST) for reason in judged.reasons)]


def culprits(judged: Judged, most: int = 3) -> str:
    """The tensors of most growth, in one line; empty if none is known."""
    found = deciding(judged)
    rows = [g for g in judged.grown if g.kind == "tensor"] or list(judged.grown)
    if found is None or not rows:
        return ""
    named = ", ".join(
        f"{shorten(row.name, LONGEST)} +{format_amount(found.metric, row.growth)} ({row.why})"
        for row in rows[:most]
    )
    more = f" and {count(len(rows) - most, 'other')}" if len(rows) > most else ""
    return f"grew: {named}{more}"


def headline(gate: GateRun) -> str:
    """The number of cases, and of failed ones."""
    said = count(len(gate.judged), "case")
    against = f" against {shorten(gate.base, 60)}" if gate.base else ""
    if not gate.failed:
        return f"{said} checked{against}, none failed"
    return f"{said} checked{against}, {len(gate.failed)} failed"
