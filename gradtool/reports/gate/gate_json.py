"""The verdicts for machines; `gradtool schema check` is what they look like."""

from __future__ import annotations

from typing import Any

from gradtool.check.sentences import GateRun
from gradtool.check.verdicts import Judged

SCHEMA_VERSION = 1


def gate_json(gate: GateRun) -> dict[str, Any]:
    """All cases with their metrics; sizes are integers in bytes, `baseline` null without one."""
    return {
        "schema_version": SCHEMA_VERSION,
        "base": gate.base or None,
        "failed": len(gate.failed),
        "cases": [_case(judged) for judged in gate.judged],
    }


def _case(judged: Judged) -> dict[str, Any]:
    case, metrics = judged.case, judged.metrics
    return {
        "case": case.name,
        "group": case.group,
        "model": case.model,
        **case.made_for,
        "verdict": judged.verdict,
        "failed": judged.failed,
        "limit": dict(case.limit),
        "metrics": None if metrics is None else dict(metrics.values),
        "changes": [
            {
                "metric": found.metric,
                "baseline": found.before,
                "now": found.now,
                "broken": list(found.broken),
            }
            for found in judged.changes
        ],
        "reasons": list(judged.reasons),
        "notes": [] if metrics is None else list(metrics.notes),
        "grown": [
            {
                "name": row.name,
                "kind": row.kind,
                "baseline": row.before,
                "now": row.now,
                "why": row.why,
            }
            for row in judged.grown
        ],
    }
