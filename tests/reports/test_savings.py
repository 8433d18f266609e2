"""What keeping less of forward saves, as rows."""

from gradtool.reports import savings
from gradtool.workloads.savings import Saving

ROWS = (
    Saving("plain", 8192, 0, 20480, (), 0),
    Saving("masks", 4096, 0, 16384, (("LessOrEqual", 2),), 0),
    Saving("hoisting", 1024, 3, None, (("ReduceSum", 4), ("Shape", 1)), 2),
)


def test_each_step_is_a_row():
    assert savings.table(ROWS).rows == (
        ("before", "8.00 KiB", "20.0 KiB", ""),
        ("masks", "4.00 KiB", "16.0 KiB", "LessOrEqual (2)"),
        ("hoisting", "1.00 KiB", "unknown", "ReduceSum (4), Shape (1), 2 sizes read elsewhere"),
    )


def test_values_of_unknown_size_are_said():
    assert savings.table(ROWS).footer == "3 values of unknown size cross as well"
    assert savings.table(ROWS[:2]).footer == ""


def test_machines_get_bytes():
    assert savings.rows_json(ROWS)[2] == {
        "step": "hoisting",
        "crossing_bytes": 1024,
        "unsized": 3,
        "total_bytes": None,
        "moved": {"ReduceSum": 4, "Shape": 1},
        "asked": 2,
    }
