"""The losses of rising learning rates, and the rates that they suggest: `train --find-lr`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict

from gradtool.reports.learning import number
from gradtool.reports.learning_page import HEIGHT, Axes, through
from gradtool.reports.pictures import across, picture, pictures_page
from gradtool.text.json_schema import Count
from gradtool.text.layout import Column
from gradtool.text.plot import plot
from gradtool.text.table import Table
from gradtool.training.rate_sweep import RateSweep

TALL = 12  # rows of a plot


class RatesDocument(TypedDict):
    """Losses of rising learning rates, and rates that they suggest."""

    model: Annotated[str, "The forward model."]
    rates: Annotated[list[float], "The learning rate of each step."]
    losses: list[float]
    smooth: Annotated[list[float], "Exponential means of the losses."]
    diverged: Annotated[bool, "Whether the losses ended the sweep."]
    steepest: Annotated[float | None, "Where the loss falls fastest; null if it never falls."]
    least: Annotated[float | None, "A tenth of the rate of the least loss."]
    written: Annotated[dict[str, Count], "Bytes of the files that were written, by path."]


def rates_json(found: RateSweep, written: Mapping[str, int], source: str) -> RatesDocument:
    """The sweep for machines."""
    return {
        "model": source, "rates": list(found.rates), "losses": list(found.losses),
        "smooth": list(found.smooth), "diverged": found.diverged, "steepest": found.steepest,
        "least": found.least, "written": dict(written),
    }  # fmt: skip


def rates_lines(found: RateSweep) -> list[str]:
    """The rates suggested by the losses."""
    last = number(found.rates[-1])
    ended = f"the loss diverges at {last}" if found.diverged else f"no loss diverges up to {last}"
    told = f"{len(found.rates)} steps: {ended}"
    if found.steepest is None or found.least is None:
        return [f"{told}; it falls at no rate: check the data, the loss and --batch"]
    return [
        told,
        f"steepest descent: --lr {found.steepest:.2g}",
        f"a tenth of the least loss's rate: --lr {found.least:.2g}",
    ]


def rates_plot(found: RateSweep, width: int, *, unicode: bool) -> list[str]:
    """The smoothed loss over the logarithm of the rate."""
    ends = (number(found.rates[0]), number(found.rates[-1]))
    points = list(enumerate(found.smooth, 1))
    title = "smoothed loss by learning rate"
    return plot(title, points, width, TALL, linear=True, unicode=unicode, ends=ends)


def rates_page(found: RateSweep, name: str) -> str:
    """The page as the text of an HTML file."""
    points = list(enumerate(found.smooth))
    axes = Axes([points], linear=True, marks=_powers(found.rates))
    dots = [
        f'<circle class="run0" cx="{across(axes.x(at))}" cy="{axes.y(found.smooth[at]):.1f}" '
        f'r="4"><title>{what}: {number(found.rates[at])}</title></circle>'
        for what, rate in (("steepest descent", found.steepest), ("least / 10", found.least))
        if rate is not None
        for at in [min(range(len(points)), key=lambda n: abs(math.log(found.rates[n] / rate)))]
    ]
    numbers = Table(
        columns=Column.numbers("learning rate", "loss", "smoothed"),
        rows=tuple(
            tuple(map(number, each))
            for each in zip(found.rates, found.losses, found.smooth, strict=True)
        ),
    )  # fmt: skip
    drawing = axes.svg() + through(axes, "run0", points) + "".join(dots)
    title = "Smoothed loss by learning rate"
    return pictures_page(
        f"Learning rates: {name}", rates_lines(found)[0], ("Suggestions", _suggestions(found)),
        [picture(title, HEIGHT, drawing, numbers=numbers)], (),
    )  # fmt: skip


def _suggestions(found: RateSweep) -> Table:
    return Table(
        columns=(Column("by"), *Column.numbers("learning rate")),
        rows=(
            ("steepest descent", number(found.steepest)),
            ("a tenth of the least loss's rate", number(found.least)),
        ),
    )


def _powers(rates: Sequence[float]) -> list[tuple[float, str]]:
    """The powers of ten among rates that rise by equal factors, as steps and their names."""
    first, last = math.log10(rates[0]), math.log10(rates[-1])
    tens = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)
    span = (last - first) or 1.0
    return [((ten - first) / span * (len(rates) - 1), f"1e{ten}") for ten in tens]
