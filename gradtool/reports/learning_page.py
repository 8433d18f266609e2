"""The curves of trainings as a page: pictures without a script, in a file that needs no network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from gradtool.reports.learning import LINEAR, Point, Run, number, runs_table
from gradtool.reports.pictures import (
    across,
    in_numbers,
    marks_across,
    marks_up,
    path,
    picture,
    pictures_page,
    round_numbers,
    scrolling,
    section,
    shown,
)
from gradtool.reports.predictions import confusion_svg, tables
from gradtool.text.layout import Column
from gradtool.text.plot import RATIO
from gradtool.text.table import Table
from gradtool.text.words import count

TITLE = "Training"
HEIGHT, TOP, BOTTOM = 300, 10, 28  # of a picture, and its margins
MOST = 800  # points of a line: of more the means of their shares are drawn
SMOOTH = 40  # so many means are drawn over a noisy line
DOTS = 60  # points up to which each is a dot that says its number

Curve = Sequence[tuple[int, float]]


def learning_page(runs: Sequence[Run]) -> str:
    """The page as the text of an HTML file: the same journals give the same text."""
    names = list(dict.fromkeys(name for run in runs for name in run.curves()))
    return pictures_page(
        TITLE if len(runs) > 1 else f"{TITLE}: {runs[0].name}",
        f"{count(sum(run.steps for run in runs), 'step')} in all",
        ("Runs", runs_table(runs)),
        [
            *(_section(name, [(r.name, r.curves().get(name, [])) for r in runs]) for name in names),
            *(
                _confusion(f"{run.name}: " if len(runs) > 1 else "", run, name)
                for run in runs
                for name in run.tables
            ),
        ],
        [(_style(n), run.name) for n, run in enumerate(runs)] if len(runs) > 1 else (),
    )


def _confusion(of: str, run: Run, name: str) -> str:
    """A confusion matrix of a run as a picture, and in numbers."""
    counts, title = run.tables[name], f"{name} at step {run.at}"
    (numbers,) = tables({title: counts}, run.classes)
    drawn = scrolling(f"{of}{title}: a picture", confusion_svg({f"{of}{title}": counts}))
    return section(f"{of}{title}", drawn + in_numbers(f"{of}{title}", numbers))


def _section(name: str, lines: Sequence[tuple[str, Sequence[Point]]]) -> str:
    """A heading and a picture of the same curve of all runs; nothing where it never changes."""
    known = [
        (run, [(step, value) for step, value in points if value is not None])
        for run, points in lines
    ]
    values = [value for _, points in known for _, value in points]
    if (name != "loss" and len(set(values)) < 2) or not values:
        return ""
    axis = Axes([points for _, points in known], linear=name in LINEAR)
    drawn = [
        _line(axis, _style(index), run, points, noisy=name not in LINEAR)
        for index, (run, points) in enumerate(known)
    ]
    title = f"{name} (logarithmic)" if axis.scaled else name
    return picture(title, HEIGHT, axis.svg() + "".join(drawn), numbers=_numbers(known))


class Axes:
    """The coordinates of steps and values in the picture; `marks` are steps and their names."""

    def __init__(
        self, lines: Sequence[Curve], *, linear: bool, marks: Sequence[tuple[float, str]] = ()
    ) -> None:
        self._marks = marks
        points = [point for line in lines for point in line]
        self.first, self.last = min(s for s, _ in points), max(s for s, _ in points)
        self.low, self.high = min(v for _, v in points), max(v for _, v in points)
        self.scaled = not linear and self.low > 0 and self.high / self.low > RATIO

    def x(self, step: float) -> float:
        return (step - self.first) / max(self.last - self.first, 1)

    def y(self, value: float) -> float:
        low, high = self._height(self.low), self._height(self.high)
        share = (self._height(value) - low) / (high - low) if high > low else 0.5
        return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)

    def svg(self) -> str:
        """Lines across with their numbers, and the steps below."""
        marks = self._marks or [(s, f"{s:,}") for s in _round_steps(self.first, self.last)]
        steps = [(self.x(step), name) for step, name in marks]
        below = marks_across(steps, HEIGHT - BOTTOM, HEIGHT - BOTTOM)
        return marks_up((self.y(v), number(v)) for v in self._values()) + below

    def _height(self, value: float) -> float:
        return math.log10(value) if self.scaled else value / 2  # a difference of two is finite

    def _values(self) -> list[float]:
        if self.scaled:
            tens = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            return [10.0**ten for ten in tens]
        return round_numbers(self.low, self.high)


def _round_steps(first: int, last: int) -> list[int]:
    steps = {int(s) for s in round_numbers(first, last) if s == int(s)}
    near = {s for s in steps if 0 < min(s - first, last - s) < (last - first) / 20}
    return sorted({first, *steps, last} - near)


def _style(index: int) -> str:
    return f"run{index % 6}"


def _line(axis: Axes, style: str, run: str, points: Curve, *, noisy: bool) -> str:
    """A line through the points; a noisy one is drawn lightly, with its means over it."""
    if not points:
        return ""
    thin = through(axis, style, _means(points, MOST))
    if len(points) <= DOTS:
        return thin + "".join(
            f'<circle class="{style}" cx="{across(axis.x(s))}" cy="{axis.y(v):.1f}" r="3">'
            f"<title>{shown(run)}, step {s:,}: {number(v)}</title></circle>"
            for s, v in points
        )
    if not noisy:
        return thin
    light = through(axis, f"{style} light", _means(points, MOST))
    return light + through(axis, style, _means(points, SMOOTH))


def through(axis: Axes, style: str, points: Sequence[tuple[float, float]]) -> str:
    return path(style, [(axis.x(s), axis.y(v)) for s, v in points], HEIGHT)


def _means(points: Curve, most: int) -> list[tuple[float, float]]:
    """The means of at most so many equal shares of the points; the points where they are few."""
    return [
        (sum(s for s, _ in share) / len(share), sum(v / len(share) for _, v in share))
        for share in _shares(points, most)
    ]


def _shares(points: Curve, most: int) -> list[Curve]:
    count = min(most, len(points))
    cuts = [n * len(points) // count for n in range(count + 1)]
    return [points[a:b] for a, b in pairwise(cuts)]


def _numbers(lines: Sequence[tuple[str, Curve]]) -> Table:
    """Each point if they are few, else the means of their shares."""
    rows = [
        (run, f"{share[0][0]:,}" if len(share) == 1 else f"{share[0][0]:,}–{share[-1][0]:,}",
         number(sum(v / len(share) for _, v in share)))
        for run, points in lines if points
        for share in _shares(points, DOTS if len(points) <= DOTS else SMOOTH)
    ]  # fmt: skip
    columns = (Column("run", kind="name"), Column("steps", "right"), Column("value", "right"))
    return Table(columns, tuple(rows))
