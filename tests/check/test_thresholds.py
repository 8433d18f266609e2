"""The grammar of rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtool.check.thresholds import format_amount, parse_threshold
from gradtool.errors import UsageError

SIZES = st.integers(0, 1 << 50)


@pytest.mark.parametrize(
    ("rule", "before", "now", "broken"),
    [
        ("peak:0%", 100, 100, False),
        ("peak:0%", 100, 101, True),
        ("peak:1%", 100, 101, False),
        ("peak:1%", 100, 102, True),
        ("peak:1KiB", 100, 1124, False),
        ("peak:1KiB", 100, 1125, True),
        ("peak:1%+1MiB", 1 << 30, (1 << 30) + (1 << 20) + 1, False),
        ("peak:1%+1MiB", 1 << 20, (1 << 20) + 20_000, False),
        ("peak:1%+1MiB", 1 << 20, (1 << 21) + 1, True),
        ("peak: 1MiB + 1% ", 1 << 20, (1 << 21) + 1, True),
        ("nodes:3", 10, 13, False),
        ("nodes:3", 10, 14, True),
        ("extra-flops:5%", 0, 1, True),
    ],
)
def test_growth_fails_where_the_share_and_the_amount_are_exceeded(rule, before, now, broken):
    assert parse_threshold(rule).broken(before, now) is broken


@given(before=SIZES, now=SIZES, share=st.integers(0, 50), amount=SIZES)
def test_two_amounts_fail_where_each_alone_would(before, now, share, amount):
    both = parse_threshold(f"peak:{share}%+{amount}").broken(before, now)
    alone = [parse_threshold(f"peak:{part}").broken(before, now) for part in (f"{share}%", amount)]

    assert both == all(alone)


@given(before=SIZES, less=SIZES)
def test_no_rule_fails_what_did_not_grow(before, less):
    assert not parse_threshold("peak:0%").broken(before, max(before - less, 0))


BAD = {
    "peak": "is no rule: write METRIC:AMOUNT, as in peak:1%+1MiB",
    "peek:1%": "there is no metric 'peek'; did you mean 'peak'?",
    "zzz:1%": "there are peak, total, load",
    "peak:": "'' is not a size",
    "peak:1G": "'1G' is ambiguous",
    "peak:x%": "'x%' is not a percentage",
    "peak:-1%": "'-1%' is not a percentage",
    "peak:1%+2%": "has two amounts of a kind",
    "peak:1KiB+1%+1KiB": "has two amounts of a kind",
    "nodes:1KiB": "'1KiB' is no number of steps, which nodes is in",
    "nodes:\u0663": "is no number of steps",
}


@pytest.mark.parametrize("rule", BAD)
def test_what_is_no_rule_is_refused_with_the_reason(rule):
    with pytest.raises(UsageError) as raised:
        parse_threshold(rule)

    assert BAD[rule] in str(raised.value)


def test_values_are_shown_in_the_unit_of_their_metric():
    assert format_amount("peak", 1 << 20) == "1.00 MiB"
    assert format_amount("nodes", 12) == "12"
    assert format_amount("flops", 2_500_000) == "2.50 M"
