"""The kernels of a step under the roofs of their machine, as a page: pictures without a script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape as plain

from gradtool.costs.roofline import Reach
from gradtool.program import Step
from gradtool.reports.html import filled, hashed, joined, table_html
from gradtool.reports.roofline import Kernel, by_operator, roofline_table
from gradtool.text.names import escape, shorten
from gradtool.text.units import format_seconds

STYLE = ("report.css", "pictures.css")
WIDTH, HEIGHT = 1160, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 14, 44  # margins around the picture
LONGEST = 200  # characters of a name
BARS = 20  # operators
BAR, NAMES = 22, 300  # the height of a bar, and the width that names have
RADIUS = 26  # of a circle that is the whole step


def roofline_page(
    title: str, steps: Sequence[Step], seconds: Sequence[float], reach: Reach | None
) -> str:
    """The page as the text of an HTML file; `seconds` are those of each step."""
    style, kernels = joined(STYLE), by_operator(steps, seconds, reach)
    sections = [_bars(kernels)]
    if reach is not None:
        sections.insert(0, _roofs(steps, seconds, reach))
    return filled(
        "pictures.html",
        {
            "policy": f"default-src 'none'; style-src {hashed(style)}; base-uri 'none'; "
            "form-action 'none'",
            "title": f"Kernels: {_shown(title)}",
            "style": style,
            "legend": "",
            "table": table_html(roofline_table(kernels, reach, most=None)),
            "pictures": "\n".join(sections),
        },
    )


class _Axes:
    """Where operations a byte and GFLOP/s lie in the picture, both as logarithms."""

    def __init__(self, points: Sequence[tuple[float, float]], reach: Reach) -> None:
        ridge, top = reach.flops / reach.bytes, reach.flops / 1e9
        self.left, self.right = _around([x for x, _ in points] + [ridge])
        self.low, self.high = _around([y for _, y in points] + [top])

    def x(self, intensity: float) -> float:
        share = (math.log10(intensity) - self.left) / (self.right - self.left)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, speed: float) -> float:
        share = (math.log10(speed) - self.low) / (self.high - self.low)
        return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)

    def svg(self) -> str:
        """Lines at powers of ten, with their numbers."""
        bottom = HEIGHT - BOTTOM
        across = "".join(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(10.0**n):.1f}" '
            f'y2="{self.y(10.0**n):.1f}"/><text class="value" x="{LEFT - 8}" '
            f'y="{self.y(10.0**n) + 4:.1f}">{10.0**n:g}</text>'
            for n in range(self.low, self.high + 1)
        )
        up = "".join(
            f'<line class="grid" y1="{TOP}" y2="{bottom}" x1="{self.x(10.0**n):.1f}" '
            f'x2="{self.x(10.0**n):.1f}"/><text class="step" x="{self.x(10.0**n):.1f}" '
            f'y="{bottom + 18}">{10.0**n:g}</text>'
            for n in range(self.left, self.right + 1)
        )
        names = (
            f'<text class="step" x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}">operations a byte'
            f'</text><text x="{LEFT + 6}" y="{TOP + 12}">GFLOP/s</text>'
        )
        return across + up + names

    def roofs(self, reach: Reach) -> str:
        """What a copy allows, then what a matrix product does."""
        top, ridge = reach.flops / 1e9, reach.flops / reach.bytes
        first = max(10.0**self.left, 10.0**self.low * 1e9 / reach.bytes)
        points = [(first, first * reach.bytes / 1e9), (ridge, top), (10.0**self.right, top)]
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        return f'<polyline class="run1" points="{path}"/>'


def _around(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around some values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _roofs(steps: Sequence[Step], seconds: Sequence[float], reach: Reach) -> str:
    """A circle for each step that computes, as large as its share of the time."""
    whole = sum(seconds) or 1.0
    drawn = [
        (step, taken, step.flops / step.moved, step.flops / taken / 1e9)
        for step, taken in zip(steps, seconds, strict=True)
        if step.flops and step.moved and taken > 0
    ]
    axes = _Axes([(x, y) for _, _, x, y in drawn], reach)
    circles = "".join(
        f'<circle class="run0 dim" cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" '
        f'r="{2 + RADIUS * math.sqrt(taken / whole):.1f}"><title>{_shown(step.name)} '
        f"({_shown(step.op)}): {format_seconds(taken)}, {y:.1f} GFLOP/s, "
        f"{step.moved / taken / 1e9:.1f} GB/s</title></circle>"
        for step, taken, x, y in sorted(drawn, key=lambda each: -each[1])
    )
    hint = (
        "Each circle is a step, as large as its share of the time. The line is what this "
        "machine reaches: a copy on the left, a matrix product on the right. What finds its data "
        "in a cache may lie above, and so may Winograd's convolutions, which have fewer "
        "operations than are counted."
    )
    return _picture("Roofline", HEIGHT, axes.svg() + axes.roofs(reach) + circles, hint)


def _bars(kernels: Sequence[Kernel]) -> str:
    """The time of each operator, and the part of it that the roofs ask for."""
    most = max((kernel.seconds for kernel in kernels), default=0.0) or 1.0
    room = WIDTH - NAMES - RIGHT - 90
    bars = "".join(
        f'<text class="value" x="{NAMES - 8}" y="{n * BAR + 15}">{_shown(kernel.op, 40)}</text>'
        f'<rect class="bar0" x="{NAMES}" y="{n * BAR + 3}" height="{BAR - 6}" '
        f'width="{room * kernel.seconds / most:.1f}"/>'
        f'<rect class="bar1" x="{NAMES}" y="{n * BAR + 3}" height="{BAR - 6}" '
        f'width="{room * min(kernel.least, kernel.seconds) / most:.1f}"/>'
        f'<text x="{NAMES + room * kernel.seconds / most + 8:.1f}" y="{n * BAR + 15}">'
        f"{format_seconds(kernel.seconds)}</text>"
        for n, kernel in enumerate(kernels[:BARS])
    )
    hint = "The dark part is the least time at the roofs above its steps; the light part is lost."
    return _picture("Time by operator", BAR * min(len(kernels), BARS) + 6, bars, hint)


def _picture(title: str, height: int, drawing: str, hint: str) -> str:
    return (
        f'<section><h2>{title}</h2><p class="hint">{hint}</p><svg viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{title}">{drawing}</svg></section>'
    )


def _shown(name: str, longest: int = LONGEST) -> str:
    return plain(shorten(escape(name), longest))
