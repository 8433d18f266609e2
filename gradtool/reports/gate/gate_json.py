"""The verdicts for machines; `gradtool schema check` prints their schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, TypedDict

from gradtool.check.cases import Case, CaseRecord
from gradtool.check.sentences import GateRun
from gradtool.check.verdicts import Change, Judged, Verdict
from gradtool.comparison.growth import Grown
from gradtool.text.json_schema import Count


class ListedRecord(CaseRecord):
    """A case of a configuration."""

    limit: dict[str, Count]
    recorded: Annotated[bool, "Whether there is a baseline."]


class CasesDocument(TypedDict):
    """The cases of a configuration."""

    cases: list[ListedRecord]


class JudgedRecord(CaseRecord):
    """The verdict on a case; sizes are bytes."""

    verdict: Verdict
    failed: bool
    limit: dict[str, Count]
    metrics: dict[str, Count] | None
    changes: Annotated[Sequence[Change], "The metric that decides first."]
    reasons: list[str]
    notes: list[str]
    grown: Annotated[Sequence[Grown], "The causes of the first metric's growth, in its unit."]


class CheckDocument(TypedDict):
    """A run of the gate."""

    base: Annotated[str | None, "The revision that was compared with; null where baselines were."]
    failed: Annotated[Count, "How many cases failed."]
    cases: list[JudgedRecord]


def gate_json(gate: GateRun) -> CheckDocument:
    """All cases with their metrics."""
    return {
        "base": gate.base or None,
        "failed": len(gate.failed),
        "cases": [_case(judged) for judged in gate.judged],
    }


def cases_json(recorded: Iterable[tuple[Case, bool]]) -> CasesDocument:
    """Cases, and whether each has a baseline."""
    return {
        "cases": [
            {**case.record, "limit": dict(case.limit), "recorded": found}
            for case, found in recorded
        ]
    }


def _case(judged: Judged) -> JudgedRecord:
    metrics = judged.metrics
    return {
        **judged.case.record,
        "verdict": judged.verdict,
        "failed": judged.failed,
        "limit": dict(judged.case.limit),
        "metrics": None if metrics is None else dict(metrics.values),
        "changes": judged.changes,
        "reasons": list(judged.reasons),
        "notes": [] if metrics is None else list(metrics.notes),
        "grown": judged.grown,
    }
