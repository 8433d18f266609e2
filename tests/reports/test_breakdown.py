"""What is held at the peak, by what made it."""

from __future__ import annotations

import dataclasses

import pytest
from training_programs import chain

from gradtool.planning.breakdown import FRAGMENTATION
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.recompute.late_clones import late
from gradtool.planning.schedule import replay
from gradtool.reports import breakdown
from gradtool.reports.memory import FOOTER

PROGRAM = chain(4)
KEPT = no_recompute(PROGRAM)
LESS = no_recompute(replay(PROGRAM, late(PROGRAM, {1: "_mirror", 3: "_mirror"})), "mirror")
WHATS = ["op", "phase", "module", "tensor"]


@pytest.mark.parametrize("what", WHATS)
def test_parts_add_up_to_what_is_alive_at_the_peak(what):
    alive = sum(buffer.bytes for buffer in KEPT.live(KEPT.peak_step))

    assert sum(breakdown.held(KEPT, what).values()) == alive == KEPT.peak_live


@pytest.mark.parametrize("what", WHATS)
def test_each_plan_is_a_column_that_adds_up_to_its_peak(what):
    table = breakdown.side_by_side([KEPT, LESS], what, 100)

    assert [c.title for c in table.columns][1:] == ["keep", "mirror"]
    assert table.rows[-1] == ("peak", f"{KEPT.peak} B", f"{LESS.peak} B")
    for column, plan in ((1, KEPT), (2, LESS)):
        sizes = [int(row[column].removesuffix(" B")) for row in table.rows[:-1]]
        assert sum(sizes) == plan.peak
    assert table.footer == FOOTER


def test_the_rows_are_the_largest_of_any_plan_and_one_for_the_rest():
    table = breakdown.side_by_side([KEPT, LESS], "tensor", 2)

    assert len(table.rows) == 4
    assert table.rows[2][0].startswith("and ")
    assert table.rows[2][0].endswith(" more")


def test_gaps_are_a_row_of_their_own():
    wider = dataclasses.replace(KEPT, peak=KEPT.peak + 64)
    rows = breakdown.side_by_side([wider], "op", 100).rows

    assert (FRAGMENTATION, "64 B") in rows
    assert breakdown.by_part(wider, "op").rows[-2][:3] == (FRAGMENTATION, "", "64 B")


def test_of_equal_parts_the_first_by_name_comes_first():
    names = [row[0] for row in breakdown.side_by_side([KEPT], "tensor", 100).rows[:-1]]

    assert names == sorted(names)


def test_modules_are_what_the_steps_say_and_the_rest_is_of_the_whole():
    modules = {"h2": "block.one", "g2": "block.one", "h3": "block.two"}
    steps = [dataclasses.replace(s, module=modules.get(s.name, "")) for s in PROGRAM.steps]
    program = dataclasses.replace(PROGRAM, steps=tuple(steps))

    parts = breakdown.held(no_recompute(program), "module")

    assert set(parts) == {"block.one", "block.two", "(top)", "inputs", "parameters"}
    assert (parts["block.one"], parts["block.two"]) == (64, 64)


def test_the_smallest_of_many_modules_are_one_row():
    steps = [dataclasses.replace(s, module=f"layers.{s.name}") for s in PROGRAM.steps]
    plan = no_recompute(dataclasses.replace(PROGRAM, steps=tuple(steps)))
    everything, some = (breakdown.by(plan, "module", top).rows for top in (100, 2))

    assert some[:2] == everything[:2]
    assert some[2][0] == f"and {len(everything) - 3} more"
    assert some[-1] == everything[-1]
    assert sum(int(row[1] or 0) for row in some) == sum(int(row[1] or 0) for row in everything)


@pytest.mark.parametrize("what", ["region", "tensor", "op", "phase", "module"])
def test_every_breakdown_of_the_report_is_a_table(what):
    table = breakdown.by(KEPT, what, 3)

    assert table.rows
    assert table.footer.endswith(FOOTER)
