"""Budgets, percentages and durations as people write them."""

from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import program

from gradtool.errors import UsageError
from gradtool.workloads.budgets.limits import Budget, parse_percent, parse_seconds

WORK = SimpleNamespace(
    program=program("y = MatMul x w", outputs="y", parameters="w"), kept=SimpleNamespace(peak=1000)
)


@pytest.mark.parametrize(
    ("text", "arena"),
    [("8KiB", 8192), ("60%", 600), ("12.5 %", 125), ("640", 640), (77, 77), ("min", None)],
)
def test_a_budget_is_bytes_a_share_or_the_least(text, arena):
    assert Budget.of(text).arena(WORK) == arena


@pytest.mark.parametrize("text", ["", "%", "-3%", "8G", "60 per cent", "1e3%", "least"])
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(UsageError):
        Budget.of(text)


def test_there_is_no_such_optimizer():
    with pytest.raises(UsageError, match="no optimizer 'lyon'; there are none, sgd, momentum"):
        Budget.of("min", "lyon")


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_a_percentage_is_exact(whole, digits):
    assert parse_percent(f"{whole}.{'0' * digits}%") == Fraction(whole, 100)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("2 min", 120), ("0.5h", 1800), ("7", 7)]
)
def test_a_duration_has_a_unit_or_is_seconds(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["soon", "-1s", "3 days", "", "1e9s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(UsageError, match="is not a duration"):
        parse_seconds(text)
