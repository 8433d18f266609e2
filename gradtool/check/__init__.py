"""The gate against growing memory: cases, baselines, limits and verdicts."""

from __future__ import annotations

from gradtool.check.cases import Case
from gradtool.check.choice import Choice
from gradtool.check.measuring import measure
from gradtool.check.verdicts import Judged, Outcome, Rules, judge, verdicts
from gradtool.comparison.growth import Grown, growth
from gradtool.comparison.metrics import METRICS, Metrics

__all__ = [
    "METRICS",
    "Case",
    "Choice",
    "Grown",
    "Judged",
    "Metrics",
    "Outcome",
    "Rules",
    "growth",
    "judge",
    "measure",
    "verdicts",
]
