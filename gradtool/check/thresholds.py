"""Allowed growth of a metric: `peak:1%+1MiB` fails if both are exceeded."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gradtool.comparison.metrics import METRICS, metric_named
from gradtool.errors import UsageError
from gradtool.text.names import escape, shorten
from gradtool.text.units import format_bytes, format_count, parse_bytes


@dataclass(frozen=True)
class Threshold:
    """Allowed growth of a metric: a `share` of the baseline and so many units.

    More than both fails.  `text` is how it was written.
    """

    metric: str
    share: Fraction
    amount: int
    text: str

    def broken(self, before: int, now: int) -> bool:
        """Whether growth from `before` to `now` exceeds the share and the amount."""
        grown = now - before
        return grown > self.amount and grown > self.share * before


def parse_threshold(text: str) -> Threshold:
    """The rule of `METRIC:AMOUNT` or `METRIC:AMOUNT+AMOUNT`; an amount is `1%` or `1MiB`.

    Raises:
        UsageError: there is no such metric, or an amount cannot be read or is given twice.
    """
    shown = shorten(escape(text), 60, ellipsis="...")
    name, colon, amounts = text.strip().partition(":")
    if not colon:
        raise UsageError(f"'{shown}' is no rule: write METRIC:AMOUNT, as in peak:1%+1MiB")
    metric = metric_named(name.strip(), f"'{shown}'")
    from gradtool.workloads.budgets.limits import parse_percent

    share, amount = None, None
    for part in amounts.split("+"):
        if part.strip().endswith("%"):
            twice, share = share is not None, parse_percent(part)
        else:
            twice, amount = amount is not None, parse_amount(metric, part)
        if twice:
            raise UsageError(f"'{shown}' has two amounts of a kind: write a share and an amount")
    return Threshold(metric, share or Fraction(0), amount or 0, text.strip())


def parse_amount(metric: str, given: str | int) -> int:
    """An amount of a metric: bytes with a unit, or a number of things.

    Raises:
        UsageError: it cannot be read, or has a unit that the metric has not.
    """
    if isinstance(given, int):
        return given
    if METRICS[metric].unit == "bytes":
        return parse_bytes(given)
    digits = given.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 24):
        shown = shorten(escape(given), 40, ellipsis="...")
        raise UsageError(f"'{shown}' is no number of {METRICS[metric].unit}, which {metric} is in")
    return int(digits)


def format_amount(metric: str, value: int) -> str:
    """A value of a metric with its unit."""
    return format_bytes(value) if METRICS[metric].unit == "bytes" else format_count(value)
