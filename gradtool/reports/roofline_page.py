"""The kernels of a step under the roofs of their machine, as a page: pictures without a script."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradtool.program import Step
from gradtool.program.roofline import Reach
from gradtool.reports.pictures import (
    across,
    marks_across,
    marks_up,
    path,
    picture,
    pictures_page,
    shown,
)
from gradtool.reports.roofline import Kernel, by_operator, roofline_table, steps_table
from gradtool.text.units import format_seconds

HEIGHT, TOP, BOTTOM = 420, 14, 44  # of a picture, and its margins
LONGEST = 200  # characters of a name
BARS = 20  # operators
STEPS = 100  # in numbers
BAR = 38  # the height of a bar and of the name above it
RADIUS = 26  # of the circle of a whole step


def roofline_page(
    title: str, told: str, steps: Sequence[Step], seconds: Sequence[float], reach: Reach | None
) -> str:
    """The page as the text of an HTML file; `seconds` are those of each step."""
    kernels = by_operator(steps, seconds, reach)
    return pictures_page(
        f"Kernels: {title}",
        told,
        ("Operators", roofline_table(kernels, reach, most=None)),
        ["" if reach is None else _roofs(steps, seconds, reach), _bars(kernels)],
        (),
    )


class _Axes:
    """The coordinates of operations a byte and GFLOP/s in the picture, both as logarithms."""

    def __init__(self, points: Sequence[tuple[float, float]], reach: Reach) -> None:
        ridge, top = reach.flops / reach.bytes, reach.flops / 1e9
        self.left, self.right = _around([x for x, _ in points] + [ridge])
        self.low, self.high = _around([y for _, y in points] + [top])

    def x(self, intensity: float) -> float:
        return (math.log10(intensity) - self.left) / (self.right - self.left)

    def y(self, speed: float) -> float:
        share = (math.log10(speed) - self.low) / (self.high - self.low)
        return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)

    def svg(self) -> str:
        """Lines at powers of ten, with their numbers."""
        up = marks_up((self.y(10.0**n), f"{10.0**n:g}") for n in range(self.low, self.high + 1))
        tens = [(self.x(10.0**n), f"{10.0**n:g}") for n in range(self.left, self.right + 1)]
        names = (
            f'<text class="step" x="50%" y="{HEIGHT - 6}">operations a byte</text>'
            f'<text x="6" y="{TOP + 12}">GFLOP/s</text>'
        )
        return up + marks_across(tens, HEIGHT - BOTTOM, TOP) + names

    def roofs(self, reach: Reach) -> str:
        """The roof of a copy, then of a matrix product."""
        top, ridge = reach.flops / 1e9, reach.flops / reach.bytes
        first = max(10.0**self.left, 10.0**self.low * 1e9 / reach.bytes)
        points = [(first, first * reach.bytes / 1e9), (ridge, top), (10.0**self.right, top)]
        return path("run1", [(self.x(x), self.y(y)) for x, y in points], HEIGHT)


def _around(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around some values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _roofs(steps: Sequence[Step], seconds: Sequence[float], reach: Reach) -> str:
    """A circle for each computing step, as large as its share of the time."""
    whole = sum(seconds) or 1.0
    drawn = [
        (step, taken, step.flops / step.moved, step.flops / taken / 1e9)
        for step, taken in zip(steps, seconds, strict=True)
        if step.flops and step.moved and taken > 0
    ]
    axes = _Axes([(x, y) for _, _, x, y in drawn], reach)
    circles = "".join(
        f'<circle class="run0 dim" cx="{across(axes.x(x))}" cy="{axes.y(y):.1f}" '
        f'r="{2 + RADIUS * math.sqrt(taken / whole):.1f}"><title>{shown(step.name, LONGEST)} '
        f"({shown(step.op, LONGEST)}): {format_seconds(taken)}, {y:.1f} GFLOP/s, "
        f"{step.moved / taken / 1e9:.1f} GB/s</title></circle>"
        for step, taken, x, y in sorted(drawn, key=lambda each: -each[1])
    )
    hint = (
        "Each circle is a step, as large as its share of the time. The line is what this "
        "machine reaches: a copy on the left, a matrix product on the right. What finds its data "
        "in a cache may lie above, and so may Winograd's convolutions, which have fewer "
        "operations than are counted."
    )
    numbers = steps_table(steps, seconds, reach, STEPS)
    drawing = axes.svg() + axes.roofs(reach) + circles
    return picture("Roofline", HEIGHT, drawing, hint=hint, numbers=numbers)


def _bars(kernels: Sequence[Kernel]) -> str:
    """The time of each operator, and the part of it required by the roofs."""
    most = max((kernel.seconds for kernel in kernels), default=0.0) or 1.0
    bars = "".join(
        f'<text class="name" x="0" y="{n * BAR + 14}">{shown(kernel.op, 48)}</text>'
        + _bar("run0 light", kernel.seconds / most, n)
        + _bar("run0", min(kernel.least, kernel.seconds) / most, n)
        + f'<text x="{across(kernel.seconds / most)}" dx="8" y="{n * BAR + 31}">'
        f"{format_seconds(kernel.seconds)}</text>"
        for n, kernel in enumerate(kernels[:BARS])
    )
    hint = "The dark part is the least time at the roofs above its steps; the light part is lost."
    height = BAR * min(len(kernels), BARS) + 4
    return picture("Time by operator", height, bars, hint=hint, kind="bars")


def _bar(style: str, share: float, number: int) -> str:
    top, width = number * BAR + 19, across(share)
    return f'<rect class="{style}" x="0" y="{top}" height="16" width="{width}"/>'
