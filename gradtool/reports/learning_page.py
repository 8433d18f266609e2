"""The curves of trainings as a page: pictures without a script, in a file that needs no network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape as plain
from itertools import pairwise

from gradtool.reports.html import filled, hashed, joined, table_html
from gradtool.reports.learning import LINEAR, Point, Run, number, runs_table
from gradtool.text.names import escape, shorten
from gradtool.text.plot import RATIO

STYLE = ("report.css", "pictures.css")
TITLE = "Training"
LONGEST = 400  # characters of a name
WIDTH, HEIGHT = 1160, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 12, 10, 28  # margins around the picture
MOST = 800  # points of a line: of more the means of their shares are drawn
SMOOTH = 40  # so many means are drawn over a noisy line
DOTS = 60  # points up to which each is a dot that says its number


def learning_page(runs: Sequence[Run]) -> str:
    """The page as the text of an HTML file: the same journals give the same text."""
    style = joined(STYLE)
    names = list(dict.fromkeys(name for run in runs for name in run.curves()))
    sections = [_section(name, {r.name: r.curves().get(name, []) for r in runs}) for name in names]
    return filled(
        "pictures.html",
        {
            "policy": f"default-src 'none'; style-src {hashed(style)}; base-uri 'none'; "
            "form-action 'none'",
            "title": TITLE if len(runs) > 1 else f"{TITLE}: {_shown(runs[0].name)}",
            "style": style,
            "legend": _legend(runs) if len(runs) > 1 else "",
            "table": table_html(runs_table(runs)),
            "pictures": "\n".join(filter(None, sections)),
        },
    )


def _section(name: str, lines: Mapping[str, Sequence[Point]]) -> str:
    """A heading and a picture of the same curve of all runs; nothing where it never changes."""
    known = {
        run: [(step, value) for step, value in points if value is not None]
        for run, points in lines.items()
    }
    values = [value for points in known.values() for _, value in points]
    if (name != "loss" and len(set(values)) < 2) or not values:
        return ""
    axis = _Axes(known, linear=name in LINEAR)
    noisy = name not in LINEAR
    drawn = [
        _line(axis, index, run, points, noisy=noisy)
        for index, (run, points) in enumerate(known.items())
    ]
    title = f"{name} (logarithmic)" if axis.scaled else name
    return (
        f"<section><h2>{_shown(title)}</h2>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_shown(title)} by step">'
        f"{axis.svg()}{''.join(drawn)}</svg></section>"
    )


class _Axes:
    """Where a step and a value lie in the picture."""

    def __init__(self, lines: Mapping[str, Sequence[tuple[int, float]]], *, linear: bool) -> None:
        points = [point for line in lines.values() for point in line]
        self.first, self.last = min(s for s, _ in points), max(s for s, _ in points)
        self.low, self.high = min(v for _, v in points), max(v for _, v in points)
        self.scaled = not linear and self.low > 0 and self.high / self.low > RATIO

    def x(self, step: float) -> float:
        share = (step - self.first) / max(self.last - self.first, 1)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self._height(self.low), self._height(self.high)
        share = (self._height(value) - low) / (high - low) if high > low else 0.5
        return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)

    def svg(self) -> str:
        """Lines across with their numbers, and the steps below."""
        across = "".join(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(v):.1f}" '
            f'y2="{self.y(v):.1f}"/><text class="value" x="{LEFT - 8}" y="{self.y(v) + 4:.1f}">'
            f"{number(v)}</text>"
            for v in self._values()
        )
        below = "".join(
            f'<text class="step" x="{self.x(s):.1f}" y="{HEIGHT - 8}">{s:,}</text>'
            for s in _round_steps(self.first, self.last)
        )
        return across + below

    def _height(self, value: float) -> float:
        return math.log10(value) if self.scaled else value / 2  # a difference of two is finite

    def _values(self) -> list[float]:
        if self.scaled:
            tens = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            return [10.0**ten for ten in tens]
        return _round(self.low, self.high)


def _round(low: float, high: float) -> list[float]:
    """About five round numbers between two."""
    if not high > low:
        return [low]
    aim = high / 5 - low / 5
    ten = 10.0 ** math.floor(math.log10(aim))
    gap = next(k * ten for k in (1, 2, 5, 10) if k * ten >= aim)
    return [n * gap for n in range(math.ceil(low / gap), math.floor(high / gap) + 1)]


def _round_steps(first: int, last: int) -> list[int]:
    return sorted({first, *(int(s) for s in _round(first, last) if s == int(s)), last} - {
        int(s) for s in _round(first, last) if 0 < min(s - first, last - s) < (last - first) / 20
    })  # fmt: skip


def _line(
    axis: _Axes, index: int, run: str, points: Sequence[tuple[int, float]], *, noisy: bool
) -> str:
    """A line through the points; a noisy one is drawn lightly, with its means over it."""
    if not points:
        return ""
    style = f"run{index % 6}"
    thin = _means(points, MOST)
    if len(points) <= DOTS:
        dots = "".join(
            f'<circle class="{style}" cx="{axis.x(s):.1f}" cy="{axis.y(v):.1f}" r="3">'
            f"<title>{_shown(run)}, step {s:,}: {number(v)}</title></circle>"
            for s, v in points
        )
        return _polyline(axis, style, thin) + dots
    if not noisy:
        return _polyline(axis, style, thin)
    smooth = _means(points, SMOOTH)
    return _polyline(axis, f"{style} light", thin) + _polyline(axis, style, smooth)


def _polyline(axis: _Axes, style: str, points: Sequence[tuple[float, float]]) -> str:
    path = " ".join(f"{axis.x(s):.1f},{axis.y(v):.1f}" for s, v in points)
    return f'<polyline class="{style}" points="{path}"/>'


def _means(points: Sequence[tuple[int, float]], most: int) -> list[tuple[float, float]]:
    """The means of at most so many equal shares of the points; the points where they are few."""
    count = min(most, len(points))
    cuts = [n * len(points) // count for n in range(count + 1)]
    shares = [points[a:b] for a, b in pairwise(cuts)]
    return [
        (sum(s for s, _ in share) / len(share), sum(v / len(share) for _, v in share))
        for share in shares
    ]


def _legend(runs: Sequence[Run]) -> str:
    items = (f'<li class="run{n % 6}">{_shown(r.name)}</li>' for n, r in enumerate(runs))
    return f'<ul id="legend">{"".join(items)}</ul>'


def _shown(name: str) -> str:
    return plain(shorten(escape(name), LONGEST))
