"""The frontier as a table, a plot and a document."""

from dataclasses import replace
from types import SimpleNamespace

from gradtool.planning.search.proof import Proof
from gradtool.reports import frontier

KEPT = SimpleNamespace(peak=4096, program=SimpleNamespace(kernels="numpy"))


def point(budget, extra, bound):
    proof = Proof(budget, 1024, extra, bound, 1000, "a cut", "search")
    return SimpleNamespace(plan=SimpleNamespace(peak=budget - 64), proof=proof)


POINTS = [point(2048, 100, 50), point(3072, 40, 40), point(4096, 0, 0)]


def test_a_row_a_budget():
    table = frontier.frontier_table(POINTS, KEPT)
    row = ("2.00 KiB", "0.500", "1.94 KiB", "+10.000 %", "+5.000 %", "5.000")

    assert table.rows[0] == row
    assert frontier.frontier_table(POINTS, KEPT, verbose=True).rows[0] == (*row, "search")
    assert len(table.rows) == 3


def test_optimizer_state_is_part_of_budgets_and_peaks():
    table = frontier.frontier_table(POINTS, KEPT, 4096)

    assert table.rows[0][:3] == ("6.00 KiB", "0.750", "5.94 KiB")
    assert "optimizer state of 4.00 KiB is included" in table.footer


def test_what_was_cut_short_says_so():
    cut = [SimpleNamespace(plan=p.plan, proof=replace(p.proof, cut_short=True)) for p in POINTS]

    assert "cut short" in frontier.frontier_table(cut, KEPT).footer
    assert "cut short" not in frontier.frontier_table(POINTS, KEPT).footer


def test_bars_show_what_is_proven_and_what_is_not():
    lines = frontier.plot(POINTS)
    bars = [line.partition("|")[2].split(" ")[0] for line in lines[2:]]

    assert bars == ["#" * 25 + "+" * 25, "#" * 20, ""]
    assert "".join(lines).isascii()


def test_where_nothing_runs_again_there_is_no_plot():
    assert frontier.plot(POINTS[2:]) == []
    assert frontier.plot([]) == []


def test_the_document_has_all_points():
    found = frontier.frontier_json(POINTS, KEPT, "m.onnx", {"b": 2, "a": 1}, 5)

    assert list(found["dims"]) == ["a", "b"]
    assert (found["keep_bytes"], found["optimizer_bytes"]) == (4096, 5)
    assert [p["peak_bytes"] for p in found["points"]] == [1984, 3008, 4032]
    assert [p["extra_percent"] for p in found["points"]] == [10, 4, 0]
