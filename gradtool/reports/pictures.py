"""Pages of pictures without a script: a table, and drawings whose text has its size at any width.

Across, a place in a picture is a share of the room between its margins, so that a narrow page has a
narrow picture and no smaller letters; down, it is pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape as plain

from gradtool.reports.html import filled, hashed, joined
from gradtool.text.names import escape, shorten
from gradtool.text.table import Table

STYLE = ("report.css", "colours.css", "pictures.css")
LONGEST = 400  # characters of a name
ROOM = 1000  # units across a path

Key = tuple[str, str]  # a class of the style sheet, and the label of its colour


def pictures_page(
    title: str, told: str, table: tuple[str, Table], pictures: Iterable[str], keys: Sequence[Key]
) -> str:
    """The page as the text of an HTML file: a line below its title, a named table, pictures."""
    style = joined(STYLE)
    legend = "".join(f'<li class="{kind}">{shown(text)}</li>' for kind, text in keys)
    return filled(
        "pictures.html",
        {
            "policy": f"default-src 'none'; style-src {hashed(style)}; base-uri 'none'; "
            "form-action 'none'",
            "title": shown(title),
            "told": shown(told),
            "style": style,
            "table": section(table[0], scrolled(f"{table[0]}: a table", table[1])),
            "legend": f'<ul id="legend">{legend}</ul>' if keys else "",
            "pictures": "\n".join(filter(None, pictures)),
        },
    )


def section(title: str, content: str) -> str:
    """A part of the page with a heading."""
    return f"<section><h2>{shown(title)}</h2>{content}</section>"


def scrolled(label: str, table: Table) -> str:
    """A table that scrolls across by keys if it is wider than the page."""
    remarks = "".join(f'<p class="hint">{shown(line)}</p>' for line in table.footer.splitlines())
    return scrolling(label, _table(table)) + remarks


def scrolling(label: str, content: str) -> str:
    """An element of fixed width, scrolled sideways on narrow pages."""
    named = f'role="region" tabindex="0" aria-label="{shown(label)}"'
    return f'<div class="scroll" {named}>{content}</div>'


def in_numbers(title: str, numbers: Table) -> str:
    """The data of a picture, for readers of no pictures."""
    listed = scrolled(f"{title}: in numbers", numbers)
    return f"<details><summary>in numbers</summary>{listed}</details>"


def _table(table: Table) -> str:
    """A table in the style of the page: the policy lets no cell have its own."""
    kinds = [' class="number"' if column.align == "right" else "" for column in table.columns]
    head = "".join(
        f'<th scope="col"{kind}>{shown(column.title)}</th>'
        for kind, column in zip(kinds, table.columns, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(f"<td{k}>{shown(c)}</td>" for k, c in zip(kinds, row, strict=True))
        + "</tr>"
        for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def picture(
    title: str, height: float, drawing: str, *, kind: str = "", hint: str = "",
    numbers: Table | None = None,
) -> str:  # fmt: skip
    """A section with a drawing; `numbers` has its data, for readers of no pictures."""
    said = f'<p class="hint">{shown(hint)}</p>' if hint else ""
    behind = "" if numbers is None else in_numbers(title, numbers)
    return section(
        title,
        f'{said}<div class="picture {kind}"><svg height="{height:g}" role="img" '
        f'aria-label="{shown(title)}">{drawing}</svg></div>{behind}',
    )


def across(share: float) -> str:
    """A place or a width as SVG has it."""
    return f"{100 * share:.2f}%"


def path(style: str, points: Iterable[tuple[float, float]], height: float) -> str:
    """A line through shares across and pixels down."""
    corners = " ".join(f"{ROOM * x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<svg viewBox="0 0 {ROOM} {height:g}" preserveAspectRatio="none" width="100%" '
        f'height="{height:g}"><polyline class="{style}" points="{corners}"/></svg>'
    )


def marks_across(marks: Sequence[tuple[float, str]], bottom: float, top: float = 0) -> str:
    """Vertical lines with their labels below; a narrow picture leaves every other one out."""
    last = len(marks) - 1
    drawn = [
        f'<line class="grid" x1="{across(x)}" x2="{across(x)}" y1="{top:g}" y2="{bottom:g}"/>'
        f'<text class="step" x="{across(x)}" y="{bottom + 18:g}">{shown(text)}</text>'
        for x, text in marks
    ]
    return "".join(
        f'<g class="wide">{mark}</g>' if (last - n) % 2 else mark for n, mark in enumerate(drawn)
    )


def marks_up(marks: Iterable[tuple[float, str]]) -> str:
    """Horizontal lines with their labels to the left."""
    return "".join(
        f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="value" x="-8" y="{y + 4:.1f}">{shown(text)}</text>'
        for y, text in marks
    )


def round_numbers(low: float, high: float) -> list[float]:
    """About five round numbers between two."""
    if not high > low:
        return [low]
    aim = high / 5 - low / 5
    ten = 10.0 ** math.floor(math.log10(aim))
    gap = next(k * ten for k in (1, 2, 5, 10) if k * ten >= aim)
    return [n * gap for n in range(math.ceil(low / gap), math.floor(high / gap) + 1)]


def shown(name: str, longest: int = LONGEST) -> str:
    """An inert name of limited length."""
    return plain(shorten(escape(name), longest))
