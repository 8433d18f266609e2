"""Sizes, counts and durations: how people read them and write them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction

from gradtool.errors import UsageError
from gradtool.text.names import escape, shorten

PREFIXES = "KMGTPE"
COUNTS = ("", "k", "M", "G", "T", "P", "E")

_SIZE = re.compile(r"([0-9]{1,24}(?:\.[0-9]{1,24})?) *([A-Za-z]*)")
_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{prefix}IB": 1024**power for power, prefix in enumerate(PREFIXES, 1)}
_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate(PREFIXES, 1)}


def format_bytes(n: int) -> str:
    """`n` bytes in IEC units and three digits, `3.41 GiB`; exact under 1 KiB, `512 B`."""
    if n < 0:
        return f"-{format_bytes(-n)}"
    if n < 1024:
        return f"{n} B"
    return _scaled(n, 1024, ("B", *(f"{prefix}iB" for prefix in PREFIXES)))


def parse_bytes(text: str) -> int:
    """The bytes meant by `8GiB`, `8 GB`, `2.5gib` or `1024`; a fraction of a byte is dropped.

    Raises:
        UsageError: not a size, or a bare `8G`, which people read both ways.
    """
    shown = shorten(escape(text), 40, ellipsis="...")
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"'{shown}' is not a size: write bytes, or a unit as in 512MiB or 8GB")
    number, unit = match[1], match[2].upper()
    if len(unit) == 1 and unit in PREFIXES:
        power = PREFIXES.index(unit) + 1
        raise UsageError(
            f"'{shown}' is ambiguous: write {number}{unit}iB (2^{10 * power})"
            f" or {number}{unit}B (10^{3 * power})"
        )
    if unit not in _UNITS:
        raise UsageError(f"'{shown}' has an unknown unit: use B, KiB MiB GiB TiB or KB MB GB TB")
    return math.floor(Fraction(number) * _UNITS[unit])


def format_count(n: int) -> str:
    """A number of things: exact under 10 000, then in three digits, `25.6 M`."""
    if n < 0:
        return f"-{format_count(-n)}"
    if n < 10_000:
        return str(n)
    return _scaled(n, 1000, COUNTS)


def format_rate(x: float) -> str:
    """A number of things a second in three digits, whole from a hundred on: `4.21`, `1,230`."""
    return f"{float(f'{x:.3g}'):,.0f}" if x >= 100 else f"{x:.3g}"


def format_seconds(s: float) -> str:
    """A duration in three digits, `12.3 ms`; from a minute on, `4 min 05 s` and `1 h 02 min`."""
    if not math.isfinite(s):
        return "n/a"
    if s < 0:
        return f"-{format_seconds(-s)}"
    whole = round(s)
    if whole < 60:
        return _seconds(Fraction(s))
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def format_wait(s: float) -> str:
    """A waiting time in whole seconds: `7 s`, `4 min 05 s`."""
    return f"{round(s)} s" if round(s) < 60 else format_seconds(s)


def format_percent(x: float, *, signed: bool = False) -> str:
    """The fraction `x` as a percentage: `0.408` is `40.8 %`, or `+40.8 %` when `signed`."""
    if not math.isfinite(x):
        return "n/a"
    percent = round(100 * x, 1) + 0.0
    return f"{percent:{'+' if signed else ''}.1f} %"


def _scaled(n: int, base: int, units: Sequence[str]) -> str:
    """`n` in the first unit with a number below `base`, or in the last."""
    power = 0
    while round(Fraction(n, base**power)) >= base and power < len(units) - 1:
        power += 1
    return f"{_three_digits(Fraction(n, base**power))} {units[power]}"


def _seconds(s: Fraction) -> str:
    for unit, scale in (("µs", 10**6), ("ms", 10**3)):
        if s and round(s * scale) < 1000:
            return f"{_three_digits(s * scale)} {unit}"
    return f"{_three_digits(s)} s"


def _three_digits(x: Fraction) -> str:
    """`1.23`, `12.3` or `123`; all digits from 1000 on."""
    for decimals in (2, 1):
        scaled = round(x * 10**decimals)
        if scaled < 1000:
            return f"{scaled / 10**decimals:.{decimals}f}"
    return str(round(x))
