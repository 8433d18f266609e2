"""From metrics, baselines and limits to verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from gradtool.check.baselines import Baseline
from gradtool.check.cases import Case
from gradtool.check.thresholds import Threshold, format_amount
from gradtool.comparison.growth import Grown, growth
from gradtool.comparison.metrics import METRICS, Metrics
from gradtool.text.json_schema import Count

Verdict = Literal["ok", "improved", "updated", "grew", "over limit", "new", "stale", "error"]
FAILED: tuple[Verdict, ...] = ("grew", "over limit", "new", "stale", "error")


@dataclass(frozen=True)
class Outcome:
    """The outcome of measuring a case: its metrics, or an error and its exit code."""

    metrics: Metrics | None
    error: str = ""
    exit_code: int = 0


@dataclass(frozen=True)
class Rules:
    """The strictness beside the rules of a case, which a given `fail_on` replaces.

    `base` is the revision that the baselines are planned from, empty where they were recorded.
    """

    fail_on: tuple[Threshold, ...] = ()
    allow_new: bool = False
    fail_on_stale: bool = False
    base: str = ""


@dataclass(frozen=True)
class Change:
    """A metric now and in the baseline; rules are as people read them.

    `baseline` is None where there is nothing to compare with.
    """

    metric: str
    baseline: Count | None
    now: Count
    broken: Annotated[tuple[str, ...], "The rules and limits that it breaks."] = ()

    @property
    def delta(self) -> int:
        """The growth in the metric's unit."""
        return 0 if self.baseline is None else self.now - self.baseline


@dataclass(frozen=True)
class Judged:
    """The verdict on a case.

    `changes` are the metrics that rules and limits are of, the one that decides first; `reasons`
    are lines about the whole case, `grown` the causes of the first broken metric's growth.
    """

    case: Case
    verdict: Verdict
    metrics: Metrics | None
    changes: tuple[Change, ...] = ()
    reasons: tuple[str, ...] = ()
    grown: tuple[Grown, ...] = ()
    exit_code: int = 0

    @property
    def failed(self) -> bool:
        """Whether the gate is closed to this case."""
        return self.verdict in FAILED


def verdicts(
    outcomes: Sequence[tuple[Case, Outcome, Baseline | None]], rules: Rules
) -> tuple[Judged, ...]:
    """The verdict on each case."""
    return tuple(judge(case, outcome, baseline, rules) for case, outcome, baseline in outcomes)


def judge(case: Case, outcome: Outcome, baseline: Baseline | None, rules: Rules) -> Judged:
    """The verdict on a case: by an error, else a limit, else a rule, else the baseline."""
    now = outcome.metrics
    if now is None:
        return Judged(case, "error", None, reasons=(outcome.error,), exit_code=outcome.exit_code)
    before = None if baseline is None else baseline.metrics
    thresholds = rules.fail_on or case.fail_on
    changes = tuple(_changes(case, before, now, thresholds))
    verdict = _verdict(case, baseline, changes, rules)
    broken = next((c for c in changes if c.broken), None)
    reasons = _reasons(case, baseline, verdict, rules.base)
    grown = () if before is None or broken is None else growth(before, now, broken.metric)
    return Judged(
        case,
        verdict,
        now,
        tuple(sorted(changes, key=lambda c: not c.broken)),
        (*reasons, *_unchecked(case, before, now, thresholds)),
        grown,
        1 if verdict in FAILED else 0,
    )


def _verdict(
    case: Case, baseline: Baseline | None, changes: Sequence[Change], rules: Rules
) -> Verdict:
    if any(c.broken and c.metric in case.limit and c.now > case.limit[c.metric] for c in changes):
        return "over limit"
    if any(change.broken for change in changes):
        return "grew"
    if baseline is None:
        return "ok" if case.limit or rules.allow_new else "new"
    if baseline.made_for != case.made_for and rules.fail_on_stale:
        return "stale"
    deltas = [change.delta for change in changes]
    if min(deltas, default=0) < 0 and max(deltas, default=0) <= 0:
        return "stale" if rules.fail_on_stale else "improved"
    return "ok"


def _changes(
    case: Case, before: Metrics | None, now: Metrics, thresholds: Sequence[Threshold]
) -> Iterator[Change]:
    """The metrics of rules and limits, in their order; the peak if there are none."""
    named = dict.fromkeys([*(t.metric for t in thresholds), *case.limit]) or {"peak": None}
    if "measured-arena" in now.values:
        named["measured-arena"] = None
    for metric in named:
        if metric not in now.values:
            continue
        old = before.values.get(metric) if before else None
        broken = tuple(_broken(case, metric, old, now, thresholds))
        yield Change(metric, old, now[metric], broken)


def _broken(
    case: Case, metric: str, old: int | None, now: Metrics, thresholds: Sequence[Threshold]
) -> Iterator[str]:
    value = now[metric]
    if metric in case.limit and value > case.limit[metric]:
        yield f"limit {format_amount(metric, case.limit[metric])}"
    if metric == "measured-arena" and value > now["peak"]:
        yield "a run takes no more than was planned"
    for rule in thresholds:
        if rule.metric == metric and old is not None and rule.broken(old, value):
            yield f"fail-on {rule.text}"


def _reasons(case: Case, baseline: Baseline | None, verdict: Verdict, base: str) -> Iterator[str]:
    if baseline is None:
        if verdict == "new":
            known = f"{base} does not have the model" if base else "there is no baseline"
            yield f"{known}: {'give --allow-new' if base else 'record one with --update'}"
        return
    yield from _differences(baseline.made_for, case.made_for)
    if verdict == "stale":
        yield "the baseline is not of today: record it with --update"


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Differences between a baseline's subject and the case."""
    for key in now:
        if before.get(key) != now[key]:
            old, new = _said(before.get(key)), _said(now[key])
            yield f"the baseline is of {key} {old}, the case of {new}"


def _said(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items()) or "none"
    return str(value)


def _unchecked(
    case: Case, before: Metrics | None, now: Metrics, thresholds: Sequence[Threshold]
) -> Iterator[str]:
    """The rules and limits without anything to hold against."""
    for metric in case.limit:
        if metric not in now.values:
            yield f"limit {metric} was not checked: {_missing(metric)}"
    for rule in thresholds:
        if rule.metric not in now.values:
            yield f"fail-on {rule.text} was not checked: {_missing(rule.metric)}"
        elif before is not None and rule.metric not in before.values:
            yield f"fail-on {rule.text} was not checked: the baseline does not have it"


def _missing(metric: str) -> str:
    return "it is measured with --run" if METRICS[metric].measured else "it is not known"
