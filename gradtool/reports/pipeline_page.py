"""The turns of a pipeline in time, as a page: a picture without a script."""

from __future__ import annotations

from html import escape as plain

from gradtool.reports.html import filled, hashed, joined, table_html
from gradtool.reports.stages import Pipeline, Turn, said, stages_table
from gradtool.text.names import escape, shorten
from gradtool.text.units import format_bytes, format_seconds

STYLE = ("report.css", "pictures.css")
WIDTH, LEFT, RIGHT, TOP = 1160, 90, 40, 8
ROW, AXIS = 34, 28  # the height of a stage, and of the seconds below
BAR, NAMES = 22, 90  # of a stage's memory
NUMBERED = 16  # the width that a turn has to have for its number
MARKS = 8  # of seconds
HELD = ("parameters", "gradients", "state", "rest")


def pipeline_page(title: str, found: Pipeline, footer: str) -> str:
    """The page as the text of an HTML file."""
    style = joined(STYLE)
    keys = ((0, "forward, parameters"), (1, "backward, sums of gradients"), (2, "state"),
            (4, "all else"))  # fmt: skip
    legend = "".join(f'<li class="run{key}">{text}</li>' for key, text in keys)
    return filled(
        "pictures.html",
        {
            "policy": f"default-src 'none'; style-src {hashed(style)}; base-uri 'none'; "
            "form-action 'none'",
            "title": f"Pipeline: {_shown(title)}",
            "style": style,
            "legend": f'<ul id="legend">{legend}</ul>',
            "table": table_html(stages_table(found, "", footer)),
            "pictures": f"{_turns(found)}\n{_memory(found)}",
        },
    )


def _turns(found: Pipeline) -> str:
    end = max((turn.end for turn in found.turns), default=0.0) or 1.0
    room = (WIDTH - LEFT - RIGHT) / end
    height = TOP + ROW * len(found.stages)
    names = "".join(
        f'<text class="value" x="{LEFT - 10}" y="{TOP + ROW * each.stage + 21}">stage '
        f"{each.stage}</text>"
        for each in found.stages
    )
    marks = "".join(
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height}"/>'
        f'<text class="step" x="{x:.1f}" y="{height + 18}">{format_seconds(end * n / MARKS)}</text>'
        for n in range(MARKS + 1) for x in (LEFT + room * end * n / MARKS,)
    )  # fmt: skip
    bars = "".join(_turn(turn, LEFT + room * turn.start, room * (turn.end - turn.start))
                   for turn in found.turns)  # fmt: skip
    hint = (
        f"Each row is a stage, each box a turn, with the number of its micro-batch: {said(found)}. "
        "What is empty is waiting."
    )
    return _picture("One step", height + AXIS, marks + names + bars, hint)


def _turn(turn: Turn, x: float, width: float) -> str:
    kind = 0 if turn.phase == "forward" else 1
    y = TOP + ROW * turn.stage
    number = (
        f'<text class="number" x="{x + width / 2:.1f}" y="{y + 21}">{turn.micro_batch}</text>'
        if width >= NUMBERED else ""
    )  # fmt: skip
    return (
        f'<rect class="turn{kind}" x="{x:.1f}" y="{y + 4}" width="{max(width, 0.5):.1f}" '
        f'height="{ROW - 8}"><title>{turn.phase} of micro-batch {turn.micro_batch}: '
        f"{format_seconds(turn.start)} to {format_seconds(turn.end)}</title></rect>{number}"
    )


def _memory(found: Pipeline) -> str:
    peaks = [sum(getattr(each, name) for name in HELD) for each in found.stages]
    room = (WIDTH - NAMES - RIGHT - 100) / (max(peaks, default=0) or 1)
    drawn = []
    for each, peak in zip(found.stages, peaks, strict=True):
        y, x = BAR * each.stage, float(NAMES)
        drawn.append(
            f'<text class="value" x="{NAMES - 10}" y="{y + 15}">stage {each.stage}</text>'
            f'<text x="{NAMES + room * peak + 8:.1f}" y="{y + 15}">{format_bytes(peak)}</text>'
        )
        for kind, name in enumerate(HELD):
            size = getattr(each, name)
            drawn.append(
                f'<rect class="held{kind}" x="{x:.1f}" y="{y + 3}" width="{room * size:.1f}" '
                f'height="{BAR - 6}"><title>{name}: {format_bytes(size)}</title></rect>'
            )
            x += room * size
    hint = (
        "From left to right: parameters, sums of gradients, state, and all else that a rank holds."
    )
    return _picture("Memory of a rank", BAR * len(found.stages) + 6, "".join(drawn), hint)


def _picture(title: str, height: int, drawing: str, hint: str) -> str:
    return (
        f'<section><h2>{title}</h2><p class="hint">{hint}</p><svg viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{title}">{drawing}</svg></section>'
    )


def _shown(name: str) -> str:
    return plain(shorten(escape(name), 200))
