import io

import pytest
from rich.console import Console

from gradtool.comparison import Snapshot, compare
from gradtool.comparison.metrics import Tensor
from gradtool.reports import comparison as reports
from gradtool.reports.memory import FOOTER
from gradtool.text.table import csv, markdown, render

LONG = "encoder/layer_norm_and_attention/" * 10
HOSTILE = ["<script>alert(1)</script>", "\x1b[31mred", "[bold]", "a|b\n| c", "\u202etac", "=1+1"]


def step(name, peak, tensors, *, nodes=3, regions=()):
    found = {
        n: Tensor("Relu", "activations", (held,), "int8", held, held, 0) for n, held in tensors
    }
    parts = {"region": {"activations": peak, **dict(regions)}, "node": {}}
    return Snapshot(name, {"peak": peak, "nodes": nodes}, parts, found)


def shown(table, width=80):
    stream = io.StringIO()
    render(table, Console(file=stream, width=width, color_system=None))
    return stream.getvalue()


@pytest.fixture
def found():
    before = step("before.onnx", 3 << 20, [("a", 1 << 20), ("b", 1 << 20), (LONG, 1)])
    now = step("now.onnx", 4 << 20, [("a", 2 << 20), ("c", 1 << 19), (LONG, 2)], nodes=5)
    return compare(before, now)


def test_totals_have_their_units_and_shares(found):
    rows = reports.totals_table(found).rows

    assert rows == (
        ("peak", "3.00 MiB", "4.00 MiB", "+1.00 MiB", "+33.3 %"),
        ("nodes", "3", "5", "+2", "+66.7 %"),
    )


def test_tensors_are_shown_the_most_moved_first(found):
    rows = reports.part_table(found, "tensor", top=3).rows

    assert [row[0] for row in rows] == ["a", "b", "c"]
    assert rows[1] == ("b", "1.00 MiB", "", "-1.00 MiB", "gone")


def test_what_is_not_shown_is_summed_up(found):
    table = reports.part_table(found, "tensor", top=1)

    assert table.footer == "and 3 more: -512 KiB"


def test_a_wide_table_fits_80_columns_by_its_names_alone(found):
    for table in reports.tables(found, 12):
        lines = shown(table).splitlines()

        assert max(map(len, lines)) <= 80
    assert "MiB" in shown(table)


def test_parts_that_did_not_move_are_one_line(found):
    assert reports.closing_lines(found) == ["nothing moved by node that runs again", FOOTER]


def test_the_state_of_an_optimizer_is_counted_where_both_have_it():
    sides = [step("net", 1, [], regions=[("state", 8)]) for _ in range(2)]

    assert "optimiser" not in reports.closing_lines(compare(*sides))[-1]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_inert_in_every_medium(name):
    found = compare(step(name, 1, []), step("now", 2, [(name, 8)]))
    table = reports.part_table(found, "tensor", 12)

    assert all(char.isprintable() or char == "\n" for char in shown(table))
    assert "<script" not in markdown(table)
    assert markdown(table).count("\n") == 3
    assert csv(table).count("\n") == 2
    assert "\n=" not in csv(table)
    assert reports.comparison_json(found)["parts"]["tensor"][0]["name"] == name
