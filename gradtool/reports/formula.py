"""Formulas of peaks, as people read them: `104 KiB·batch + 1.55 MiB`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gradtool.text.units import format_bytes
from gradtool.workloads.formulas import LARGE

if TYPE_CHECKING:
    from gradtool.workloads.formulas import Formula

_POWERS = {1: "", 2: "²", 3: "³"}


def text(formula: Formula) -> str:
    """The formula in one line; the sizes it takes for granted are in brackets."""
    line = ""
    for number, term in enumerate(formula.terms):
        size = format_bytes(abs(term.bytes))
        sign = "-" if term.bytes < 0 else "+"
        line += f" {sign} " if number else "-" if term.bytes < 0 else ""
        line += "·".join([size, *(f"{s}{_POWERS[p]}" for s, p in term.powers.items())])
    return (line or "0 B") + _workspace(formula) + _assumed(formula.fixed)


def _workspace(formula: Formula) -> str:
    if formula.workspace is None:
        return ""
    return f" + workspace ({format_bytes(formula.workspace)} at {LARGE})"


def none(symbols: Sequence[str]) -> str:
    """The message for a peak without a formula."""
    return f"no formula: its peak is no polynomial of degree 2 in {', '.join(symbols)}"


def _assumed(fixed: Mapping[str, int]) -> str:
    said = ", ".join(f"{name}={size}" for name, size in fixed.items())
    return f" ({said} assumed)" if said else ""
