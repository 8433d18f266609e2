"""Plans side by side: what is in each cell, and the lines below."""

from __future__ import annotations

import dataclasses
import json

from pages import whole
from training_programs import chain

from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.recompute.late_clones import late
from gradtool.planning.schedule import replay
from gradtool.reports import plans
from gradtool.reports.memory import FOOTER
from gradtool.reports.plans import Row

BLIND = chain(4)  # of unknown cost
PROGRAM = dataclasses.replace(
    BLIND, steps=tuple(dataclasses.replace(s, flops=1) for s in BLIND.steps)
)
KEPT = no_recompute(PROGRAM)
LESS = no_recompute(replay(PROGRAM, late(PROGRAM, {1: "_mirror", 3: "_mirror"})), "mirror")
ROWS = [Row("m.onnx", whole(KEPT), 1000, 0), Row("m.onnx", whole(LESS), 1000, 25)]


def peak_of(plan, peak, name):
    return dataclasses.replace(plan, peak=peak, name=name)


BIG = [
    Row("big", whole(peak_of(KEPT, 4096, "keep")), 200, 0, 8),
    Row("big", whole(peak_of(KEPT, 1024, "mirror")), 200, 3, 40),
    Row("big", whole(peak_of(KEPT, 4096, "sqrt")), 200, None, 0),
]


def test_a_row_says_what_it_saves_and_what_that_costs():
    table = plans.plans_table([BIG])

    assert [c.title for c in table.columns] == ["plan", "peak", "saved", "extra FLOPs"]
    assert table.rows == (
        ("keep everything", "4.00 KiB", "", ""),
        ("mirror", "1.00 KiB", "75.0 %", "+1.5 %"),
        ("recompute sqrt", "4.00 KiB", "0.0 %", "unknown"),
    )


def test_batches_have_a_column_where_a_memory_is_given():
    table = plans.plans_table([BIG], 8 << 30)

    assert table.columns[-1].title == "max batch @ 8.00 GiB"
    assert [row[-1] for row in table.rows] == ["8", "40", "none"]


def test_of_several_models_the_first_row_has_the_name():
    table = plans.plans_table([BIG, BIG[:1]])

    assert [row[0] for row in table.rows] == ["big", "", "", "big"]


def test_a_plan_without_a_title_goes_by_its_name():
    assert Row("m", whole(peak_of(KEPT, 1, "mine")), 0, 0).title == "mine"


def test_a_step_without_operations_has_no_extra_ones():
    assert Row("m", whole(KEPT), 0, 0).extra_share == 0
    nothing, kept = (Row("m", whole(peak_of(KEPT, 0, name)), 0, 0) for name in ("none", "keep"))
    assert nothing.saved(kept) == 0


def test_the_closing_lines_are_of_the_second_plan_and_end_with_what_is_counted():
    blank, peak, parts, courses, footer = plans.closing_lines([ROWS], unicode=True)

    assert (blank, footer) == ("", FOOTER)
    assert peak.startswith(f"mirror: peak {LESS.peak} B at step {LESS.peak_step + 1}/")
    assert "activations " in parts
    assert courses.startswith(" keep ")
    assert "  mirror " in courses
    assert len(courses) <= 80


def test_where_nothing_is_saved_the_course_is_that_of_keeping_everything():
    rows = [BIG[0], dataclasses.replace(BIG[2], extra=0)]
    _, peak, _, courses, _ = plans.closing_lines([rows], unicode=False)

    assert peak.startswith("keep everything: ")
    assert courses.isascii()
    assert courses.split()[0] == "keep"


def test_several_models_close_with_what_is_counted():
    assert plans.closing_lines([ROWS, ROWS], unicode=True) == [FOOTER]


def test_operators_of_unknown_cost_are_counted_once_each():
    blind = [Row("m", whole(no_recompute(BLIND)), 0, None)]
    line = "cost unknown, not in the FLOPs: MatMul (4), Mul (8), Sin (4)"

    assert plans.unknown_line(ROWS) == ""
    assert plans.unknown_line(blind) == line
    assert plans.closing_lines([blind, blind], unicode=True) == [line, FOOTER]


def test_one_line_holds_the_last_plan_against_the_first():
    line = plans.one_line(BIG[:2])

    assert line.startswith("mirror: ")
    assert [each in line for each in ("1.00 KiB", "4.00 KiB", "75.0 %")] == [True] * 3


def test_the_document_has_integers_and_sorted_sizes():
    found = json.loads(json.dumps(plans.plans_json(BIG, {"seq": 2, "batch": 1}, ["a note"])))

    assert list(found["dims"]) == ["batch", "seq"]
    assert found["notes"] == ["a note"]
    assert [p["peak_bytes"] for p in found["plans"]] == [4096, 1024, 4096]
    assert [p["extra_flops_percent"] for p in found["plans"]] == [0.0, 1.5, None]
    assert "parts" not in found["plans"][0]


def test_the_document_has_parts_where_they_are_asked_for():
    (plan,) = plans.plans_json(ROWS[:1], {}, by="phase")["plans"]

    assert sum(plan["parts"].values()) == KEPT.peak_live
    assert plan["activation_bytes"] == plans.activation_bytes(KEPT)


def test_activations_are_at_most_what_is_alive_beside_the_rest():
    """Parameters and inputs are 128 bytes; the last gradient is an output of 64."""
    sizes = [0] * len(PROGRAM.steps)
    for buffer in KEPT.buffers:
        if buffer.region in ("activations", "workspace"):
            for step in range(buffer.first, buffer.last + 1):
                sizes[step] += buffer.bytes

    assert plans.activation_bytes(KEPT) == max(sizes)
