"""A curve as lines of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

Points = Sequence[tuple[int, float | None]]

RATIO = 50.0  # of the largest to the least number: above it heights are logarithms
MARK, PLAIN_MARK = "•", "*"
AXIS, PLAIN_AXIS = "│", "|"
FLOOR, PLAIN_FLOOR = "└─", "+-"


def plot(
    title: str, points: Points, width: int, height: int, *, linear: bool = False,
    unicode: bool = True, ends: tuple[str, str] | None = None,
) -> list[str]:  # fmt: skip
    """Lines of at most `width` cells: a title, `height` rows of marks, and the steps below.

    The first step and the last are called by their numbers, or as `ends` says.

    Where there are more points than columns, each mark is the mean of its share of them.  Numbers
    that are None are left out.  Without any, there are no lines.  Heights are logarithms where the
    numbers are far apart, unless they shall be `linear`.
    """
    known = [(step, value) for step, value in points if value is not None]
    if not known:
        return []
    low, high = min(v for _, v in known), max(v for _, v in known)
    scaled = not linear and low > 0 and high / low > RATIO
    labels = _labels(low, high, height, scaled=scaled)
    margin = max(map(len, labels))
    columns = max(1, width - margin - 2)
    marks = _marks(known, columns, low, high, height, scaled=scaled)
    mark, axis, floor = (MARK, AXIS, FLOOR) if unicode else (PLAIN_MARK, PLAIN_AXIS, PLAIN_FLOOR)
    rows = []
    for row in range(height):
        cells = "".join(mark if at == row else " " for at in marks)
        rows.append(f"{labels[row]:>{margin}} {axis}{cells}".rstrip())
    first, last = ends or (str(known[0][0]), str(known[-1][0]))
    line = floor[0] + floor[1] * len(marks)
    below = " " * (margin + 2) + first
    if known[0][0] != known[-1][0]:
        below = below.ljust(margin + 2 + len(marks) - len(last)) + last
    return [f"{title} (logarithmic)" if scaled else title, *rows, " " * (margin + 1) + line, below]


def _marks(
    known: Sequence[tuple[int, float]], columns: int, low: float, high: float, height: int,
    *, scaled: bool,
) -> list[int | None]:  # fmt: skip
    """Of each column, the row of its mark, 0 at the top."""
    first, last = known[0][0], known[-1][0]
    columns = min(columns, last - first + 1)
    shares: list[list[float]] = [[] for _ in range(columns)]
    for step, value in known:
        shares[(step - first) * columns // (last - first + 1)].append(value)
    span = _scale(high, scaled=scaled) - _scale(low, scaled=scaled)
    found: list[int | None] = []
    for values in shares:
        if not values:
            found.append(None)
            continue
        mean = _scale(sum(v / len(values) for v in values), scaled=scaled)
        share = (mean - _scale(low, scaled=scaled)) / span if span else 0.0
        found.append(round((1 - share) * (height - 1)))
    return found


def _labels(low: float, high: float, height: int, *, scaled: bool) -> list[str]:
    """The labels beside the top, the middle and the bottom row."""
    middle = math.sqrt(low * high) if scaled else low / 2 + high / 2
    rows = {0: high, (height - 1) // 2: middle, height - 1: low}
    return [f"{rows[row]:.4g}" if (row in rows and low != high) or row == height - 1
            else "" for row in range(height)]  # fmt: skip


def _scale(value: float, *, scaled: bool) -> float:
    return math.log(value) if scaled else value / 2  # the difference of any two is finite
