"""How long ranks take to tell each other something: the α-β model of a link.

A message takes a latency and the time of its bytes.  Collectives go around a ring, which sends the
least bytes that there can be.

Source: Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH
(2005), without its γ: adding up is not counted.

The time of a step on a nominal machine: what alternatives are compared by, the same everywhere.

Source: the roofline model (Williams, Waterman, Patterson 2009): a step takes as long as its
operations or its bytes do, whichever is longer.  Unlike there, each call costs some time as well.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gradtool.errors import UsageError
from gradtool.program import Program, Step
from gradtool.text.units import parse_bytes

_BITS_RATE = re.compile(r"([0-9.]+)\s*(k|m|g|)bit(?:/s)?", re.IGNORECASE)
_BYTES_RATE = re.compile(r"(.*\S)\s*/\s*s", re.IGNORECASE)
_TIME = re.compile(r"([0-9.]+(?:e-?[0-9]+)?)\s*(s|ms|us|µs|ns)", re.IGNORECASE)
_BITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
OPERATIONS = 50e9  # a second
BYTES = 10e9  # a second
CALL = 20e-6  # seconds


@dataclass(frozen=True, slots=True)
class Link:
    """Bytes per second that a rank sends while it receives as many, and seconds of latency."""

    rate: float
    latency: float

    def all_reduce(self, size: int, ranks: int) -> float:
        """Seconds to sum `size` bytes over ranks: a reduce-scatter, then an all-gather."""
        return 2 * self.all_gather(size, ranks)

    def all_gather(self, size: int, ranks: int) -> float:
        """Seconds until every rank has `size` bytes, of which each had its part."""
        return (ranks - 1) * (self.latency + size / ranks / self.rate)


def parse_rate(text: str) -> float:
    """Bytes per second, of `25GB/s`, `1.5 GiB/s` or `100Gbit/s`.

    Raises:
        UsageError: it is no rate.
    """
    bits, size = (form.fullmatch(text.strip()) for form in (_BITS_RATE, _BYTES_RATE))
    try:
        if bits:
            found = float(bits[1]) * _BITS[bits[2].lower()] / 8
        else:
            found = float(parse_bytes(size[1])) if size else 0.0
    except (ValueError, UsageError):
        found = 0.0
    if not 0 < found < math.inf:
        raise UsageError(f"'{text}' is no rate of a link: write 25GB/s or 100Gbit/s")
    return found


def parse_time(text: str) -> float:
    """Seconds, of `5us`, `0.2 ms` or `1s`. Raises UsageError if it is no time."""
    match = _TIME.fullmatch(text.strip())
    try:
        found = float(match[1]) * _SECONDS[match[2].lower()] if match else -1.0
    except ValueError:
        found = -1.0
    if not 0 <= found < math.inf:
        raise UsageError(f"'{text}' is no latency: write 5us or 0.2ms")
    return found


def seconds(program: Program) -> float:
    """Nominal seconds of a program; a step of unknown cost counts its bytes."""
    return sum(map(step_seconds, program.steps))


def step_seconds(step: Step) -> float:
    """Nominal seconds of a step of a program."""
    return CALL + max((step.flops or 0) / OPERATIONS, (step.moved or 0) / BYTES)
