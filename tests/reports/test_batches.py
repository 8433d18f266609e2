"""The largest batch of each plan."""

from gradtool.reports.frontier import batches_table


def test_batches_beside_that_of_keeping_everything():
    table = batches_table({"keep": 8, "optimal": 20}, 1 << 30)

    assert table.columns[1].title == "max batch @ 1.00 GiB"
    assert table.rows == (("keep everything", "8", "1.00"), ("recompute optimal", "20", "2.50"))
    assert batches_table({"keep": 0}, 1).rows == (("keep everything", "none", ""),)
