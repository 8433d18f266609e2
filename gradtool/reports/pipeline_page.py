"""A step of a pipeline in time, as a page: pictures without a script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from gradtool.planning.pipeline import Drawn
from gradtool.reports.pictures import across, marks_across, picture, pictures_page, shown
from gradtool.reports.stages import Interval, Pipeline, said, stages_table
from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_bytes, format_seconds

ROW, BAR = 34, 26  # the heights of a stage and of its memory
AXIS = 28  # of the seconds below
WIDE, NARROW = 0.016, 0.05  # shares of a wide and of a narrow picture that hold a number
LEAST = 0.0005  # of the width, so that it is seen
MARKS = 8  # of seconds
HELD = ("parameters", "gradients", "state", "rest")
BESIDE: Mapping[str, str] = MappingProxyType({
    "given": "shared parameters from an earlier stage", "sums": "waits for sums of replicas",
    "update": "update", "parts": "replicas give each other their parts",
})  # fmt: skip
KEYS = (
    ("run0", "forward; parameters"), ("run1", "backward; sums of gradients"),
    ("run2", "update; state"), ("run3", "between ranks"), ("run4", "all else"),
)  # fmt: skip
STYLES: Mapping[str, str] = MappingProxyType(
    {"forward": "run0", "backward": "run1", "update": "run2", "parameters": "run0",
     "gradients": "run1", "state": "run2", "rest": "run4"}
)  # fmt: skip


def pipeline_page(title: str, found: Pipeline, footer: str) -> str:
    """The page as the text of an HTML file."""
    table = replace(stages_table(found, "", ""), footer="")
    pictures = [_step(found), _memory(found)]
    return pictures_page(f"Pipeline: {title}", footer, ("Stages", table), pictures, KEYS)


def _step(found: Pipeline) -> str:
    """All of the step: the turns, and the intervals before and after them."""
    height = ROW * len(found.stages)
    end = found.step or 1.0
    marks = [(n / MARKS, format_seconds(end * n / MARKS)) for n in range(MARKS + 1)]
    boxes = [
        *(_box(f"{turn.phase} of micro-batch {turn.micro_batch}", turn.phase, turn, end)
          for turn in found.turns),
        *(_box(BESIDE[each.what], each.what, each, end) for each in found.beside),
        *(_number(turn, end) for turn in found.turns),
    ]  # fmt: skip
    hint = (
        "Each row is a stage, each box with a number a turn of that micro-batch. What is empty is "
        f"waiting: {said(found)}."
    )
    drawing = marks_across(marks, height) + _names(found, ROW) + "".join(boxes)
    numbers = _numbers(found)
    return picture("One step", height + AXIS, drawing, kind="boxes", hint=hint, numbers=numbers)


def _names(found: Pipeline, height: int) -> str:
    return "".join(
        f'<text class="value" x="-8" y="{height * n + height / 2 + 4:g}">stage {each.stage}</text>'
        for n, each in enumerate(found.stages)
    )


def _box(said: str, kind: str, part: Drawn | Interval, end: float) -> str:
    width = max((part.end_seconds - part.start_seconds) / end, LEAST)
    return (
        f'<rect class="{STYLES.get(kind, "run3")}" x="{across(part.start_seconds / end)}" '
        f'y="{ROW * part.stage + 4}" width="{across(width)}" height="{ROW - 8}"><title>'
        f"{shown(said)}: {' to '.join(_ends(part))}</title></rect>"
    )


def _ends(part: Drawn | Interval) -> tuple[str, str]:
    return format_seconds(part.start_seconds), format_seconds(part.end_seconds)


def _number(turn: Drawn, end: float) -> str:
    width = (turn.end_seconds - turn.start_seconds) / end
    if width < WIDE:
        return ""
    return (
        f'<text class="number{" wide" if width < NARROW else ""}" '
        f'x="{across(turn.start_seconds / end + width / 2)}" y="{ROW * turn.stage + 21}">'
        f"{turn.micro_batch}</text>"
    )


def _numbers(found: Pipeline) -> Table:
    """The drawn turns and intervals, stage by stage in time."""
    parts: list[tuple[Drawn | Interval, str]] = [
        (turn, f"{turn.phase} of micro-batch {turn.micro_batch}") for turn in found.turns
    ]
    parts += [(each, BESIDE[each.what]) for each in found.beside]
    rows = [
        (
            str(part.stage),
            what,
            format_seconds(part.start_seconds),
            format_seconds(part.end_seconds),
        )
        for part, what in sorted(parts, key=lambda each: (each[0].stage, each[0].start_seconds))
    ]
    numbers = (Column(title, "right") for title in ("from", "to"))
    return Table((Column("stage", "right"), Column("what"), *numbers), tuple(rows))


def _memory(found: Pipeline) -> str:
    most = max((each.peak_bytes for each in found.stages), default=0) or 1
    drawn = []
    for n, each in enumerate(found.stages):
        below = 0
        for name in HELD:
            size = getattr(each, f"{name}_bytes")
            drawn.append(
                f'<rect class="{STYLES[name]}" x="{across(below / most)}" y="{BAR * n + 4}" '
                f'width="{across(size / most)}" height="{BAR - 8}"><title>{name}: '
                f"{format_bytes(size)}</title></rect>"
            )
            below += size
        drawn.append(
            f'<text x="{across(below / most)}" dx="8" y="{BAR * n + BAR / 2 + 4:g}">'
            f"{format_bytes(below)}</text>"
        )
    hint = "From left to right: parameters, sums of gradients, state, and all else of a rank."
    height, drawing = BAR * len(found.stages) + 4, _names(found, BAR) + "".join(drawn)
    return picture("Memory of a rank", height, drawing, kind="sized boxes", hint=hint)
