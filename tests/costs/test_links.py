"""The time of collectives over a link, and how links are written."""

import pytest

from gradtool.errors import UsageError
from gradtool.training.links import Link, parse_rate, parse_time


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("25GB/s", 25e9), ("1.5 GiB/s", 1.5 * 2**30), ("100Gbit/s", 12.5e9), ("10 mbit", 1.25e6),
        ("800bit/s", 100), ("7B/s", 7),
    ],
)  # fmt: skip
def test_rates(text, rate):
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5us", 5e-6), ("5 µs", 5e-6), ("0.2ms", 2e-4), ("1s", 1), ("30ns", 3e-8)]
)
def test_times(text, seconds):
    assert parse_time(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "25", "25GB", "-1GB/s", "0B/s", "xbit/s", "25G/s", "1e999B/s"]
)
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(UsageError, match="is no rate of a link"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["", "5", "-5us", "us", "1.2.3s", "5 min"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="is no latency"):
        parse_time(text)


@pytest.mark.parametrize("ranks", [1, 2, 7])
def test_a_ring_sends_each_byte_but_ones_own_twice(ranks):
    link = Link(1e9, 1e-5)

    assert link.all_reduce(0, ranks) == pytest.approx(2 * (ranks - 1) * 1e-5)
    sent = 2 * 1e6 * (ranks - 1) / ranks
    assert Link(1e9, 0).all_reduce(1_000_000, ranks) == pytest.approx(sent / 1e9)
