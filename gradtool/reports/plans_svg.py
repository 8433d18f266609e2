"""The plans of a model as one picture: an SVG file that stands in any page, light or dark.

It is narrow and its letters are large, so that they can be read where a page on a telephone makes
it smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gradtool.planning.packing import load_profile
from gradtool.planning.plan import Plan
from gradtool.reports.html import joined
from gradtool.reports.page_data import Page
from gradtool.reports.pictures import marks_up, path, round_numbers, shown
from gradtool.reports.plans import Row
from gradtool.text.units import format_bytes, format_percent

STYLE = ("colours.css", "plans.css")
WIDTH, SIDE = 480, 16  # of the picture, and its margin
LINE, HEAD = 22, 56  # a plan in the table, and its head
CHART, LEFT, BELOW = 200, 84, 48  # the height of the courses, and the room beside and below them
COLUMNS = (292, 366, WIDTH - SIDE)  # where peak, saved and extra work end
LONGEST = 24  # characters of the name of a plan
MOST = 400  # columns: of more steps the largest of their shares are drawn


def plans_svg(page: Page) -> str:
    """The text of the file: the same plans give the same text.

    The first plan of the page is an area, the others are lines over it; a step of each is as wide
    as the picture, however many nodes it runs.
    """
    rows = page.rows
    ceiling = max(row.peak for row in rows) or 1
    top = HEAD + LINE * len(rows) + 14
    height = top + CHART + BELOW
    drawn = [_course(row.plan, n, ceiling) for n, row in enumerate(rows)]
    title = f"{shown(page.model)}: memory over a training step"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{title}"><style>{joined(STYLE)}</style>'
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>'
        f'<text class="title" x="{SIDE}" y="26">{title}</text>{_table(rows)}'
        f'<svg x="{LEFT}" y="{top}" width="{WIDTH - LEFT - SIDE}" height="{CHART}" '
        f'overflow="visible">{_sizes(ceiling)}{"".join(drawn)}'
        f'<text class="step" x="50%" y="{CHART + 28}">{_below(page)}</text></svg></svg>\n'
    )


def _table(rows: Sequence[Row]) -> str:
    heads = zip(COLUMNS, ("peak", "saved", "extra work"), strict=True)
    told = [f'<text class="head right" x="{x}" y="{HEAD - 6}">{head}</text>' for x, head in heads]
    for n, row in enumerate(rows):
        y = HEAD + LINE * n + 15
        extra = row.extra_share
        cells = [format_bytes(row.peak)]
        if n:
            work = "unknown" if extra is None else format_percent(extra, signed=True)
            cells += [format_percent(row.saved(rows[0])), work]
        told.append(
            f'<line class="key {_style(n)}" x1="{SIDE}" x2="{SIDE + 18}" y1="{y - 5}" '
            f'y2="{y - 5}"/><text x="{SIDE + 26}" y="{y}">{shown(row.title, LONGEST)}</text>'
        )
        told += [
            f'<text class="right" x="{x}" y="{y}">{cell}</text>'
            for x, cell in zip(COLUMNS, cells, strict=False)
        ]
    return "".join(told)


def _style(number: int) -> str:
    return f"run{(number - 1) % 6}" if number else "area"


def _course(plan: Plan, number: int, ceiling: int) -> str:
    """Bytes alive from step to step."""
    live = _largest(plan)
    heights = [CHART * (1 - size / ceiling) for size in live]
    corners = [(x / len(live), y) for n, y in enumerate(heights) for x in (n, n + 1)]
    if not number:
        corners = [(0, CHART), *corners, (1, CHART)]
    return path(_style(number), corners, CHART)


def _largest(plan: Plan) -> list[int]:
    """The bytes of each step; where they are many, the most of each share of them."""
    steps = len(plan.program.steps)
    live = load_profile(plan.spans, steps).tolist()[:steps] or [plan.peak]
    count = min(len(live), MOST)
    cuts = [n * len(live) // count for n in range(count + 1)]
    return [max(live[a:b]) for a, b in pairwise(cuts)]


def _sizes(ceiling: int) -> str:
    unit = 1024 ** ((ceiling.bit_length() - 1) // 10)
    sizes = [round(number * unit) for number in round_numbers(0, ceiling / unit)]
    return marks_up((CHART * (1 - size / ceiling), format_bytes(size)) for size in sizes)


def _below(page: Page) -> str:
    sizes = ", ".join(f"{shown(name)}={size}" for name, size in sorted(page.dims.items()))
    return f"from its first node to its last{f'; {sizes}' if sizes else ''}"
