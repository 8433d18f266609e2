"""From metrics, baselines and limits to verdicts."""

from __future__ import annotations

import pytest
from gates import case, metrics, tensor
from hypothesis import given
from hypothesis import strategies as st

from gradtool.check import Outcome, Rules, judge, verdicts
from gradtool.check.baselines import Baseline
from gradtool.check.thresholds import parse_threshold

RULE = (parse_threshold("peak:10%"),)


def judged(before, now, *, limit=None, fail_on=RULE, rules=None, **fields):
    checked = case(fail_on=fail_on, limit=limit or {}, **fields)
    baseline = None if before is None else Baseline(metrics(peak=before), checked.made_for)
    return judge(checked, Outcome(metrics(peak=now)), baseline, rules or Rules())


CASES = {
    "as before": ((100, 100), {}, "ok"),
    "a little more": ((100, 110), {}, "ok"),
    "too much more": ((100, 111), {}, "grew"),
    "less": ((100, 99), {}, "improved"),
    "less, with a ratchet": ((100, 99), {"rules": Rules(fail_on_stale=True)}, "stale"),
    "more, with a ratchet": ((100, 101), {"rules": Rules(fail_on_stale=True)}, "ok"),
    "no baseline": ((None, 100), {}, "new"),
    "no baseline, allowed": ((None, 100), {"rules": Rules(allow_new=True)}, "ok"),
    "no baseline, but a limit": ((None, 100), {"limit": {"peak": 100}}, "ok"),
    "over a limit": ((100, 100), {"limit": {"peak": 99}}, "over limit"),
    "over a limit without a baseline": ((None, 100), {"limit": {"peak": 99}}, "over limit"),
    "a stricter rule": (
        (100, 101),
        {"rules": Rules((parse_threshold("peak:0%"),))},
        "grew",
    ),
    "no rule": ((100, 900), {"fail_on": ()}, "ok"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_verdict(name):
    sizes, given_, verdict = CASES[name]

    found = judged(*sizes, **given_)

    assert found.verdict == verdict
    assert found.failed == (verdict in ("grew", "over limit", "new", "stale"))
    assert found.exit_code == int(found.failed)


@given(before=st.integers(0, 1 << 40), now=st.integers(0, 1 << 40))
def test_a_case_fails_exactly_where_its_rule_is_broken(before, now):
    assert judged(before, now).failed == RULE[0].broken(before, now)


def test_an_error_keeps_its_code_and_its_line():
    found = judge(case(), Outcome(None, "no such file", 2), None, Rules())

    assert (found.verdict, found.exit_code, found.reasons) == ("error", 2, ("no such file",))


def test_the_broken_metric_decides_and_says_by_which_rule():
    rules = (parse_threshold("load:0%"), parse_threshold("peak:0%"))
    checked = case(fail_on=rules)
    before = metrics({"a": tensor(64)}, load=10, peak=10)
    now = metrics({"a": tensor(128, shape=(8,))}, load=10, peak=20)

    found = judge(checked, Outcome(now), Baseline(before, checked.made_for), Rules())

    assert [(c.metric, c.broken) for c in found.changes] == [
        ("peak", ("fail-on peak:0%",)),
        ("load", ()),
    ]
    assert [row.name for row in found.grown] == ["a"]


def test_any_rule_fails_the_case():
    rules = (parse_threshold("peak:50%"), parse_threshold("load:0%"))
    checked = case(fail_on=rules)
    before, now = metrics(peak=10, load=10), metrics(peak=11, load=11)

    found = judge(checked, Outcome(now), Baseline(before, checked.made_for), Rules())

    assert (found.verdict, found.changes[0].metric) == ("grew", "load")


def test_a_baseline_of_another_plan_is_said_and_stale_for_a_ratchet():
    checked = case(fail_on=RULE)
    other = Baseline(metrics(peak=100), {**checked.made_for, "plan": "mirror", "dims": {"b": 1}})

    found = judge(checked, Outcome(metrics(peak=100)), other, Rules())
    strict = judge(checked, Outcome(metrics(peak=100)), other, Rules(fail_on_stale=True))

    assert found.reasons == (
        "the baseline is of dims b=1, the case of none",
        "the baseline is of plan mirror, the case of keep",
    )
    assert (found.verdict, strict.verdict) == ("ok", "stale")


def test_what_could_not_be_checked_is_said():
    rules = (parse_threshold("measured-peak:5%"), parse_threshold("extra-flops:5%"),
             parse_threshold("load:1%"))  # fmt: skip
    checked = case(fail_on=rules, limit={"measured-arena": 5})
    baseline = Baseline(metrics(peak=1), checked.made_for)

    found = judge(checked, Outcome(metrics(peak=1, load=1)), baseline, Rules())

    assert found.reasons == (
        "limit measured-arena was not checked: it is measured with --run",
        "fail-on measured-peak:5% was not checked: it is measured with --run",
        "fail-on extra-flops:5% was not checked: it is not known",
        "fail-on load:1% was not checked: the baseline does not have it",
    )


def test_a_run_that_takes_more_than_was_planned_fails():
    now = Outcome(metrics(peak=100, measured_arena=101))

    found = judge(case(), now, None, Rules(allow_new=True))

    assert (found.verdict, found.changes[0].metric) == ("grew", "measured-arena")


def test_verdicts_are_in_the_order_of_the_cases():
    outcomes = [(case(name), Outcome(metrics(peak=1)), None) for name in "cab"]

    assert [v.case.name for v in verdicts(outcomes, Rules())] == ["c", "a", "b"]
