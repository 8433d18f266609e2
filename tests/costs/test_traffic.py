from __future__ import annotations

import numpy as np
from costs.counting import spec

from gradtool.ops import costs


def moved(*inputs, out, op="Add"):
    return costs.moved([spec(i) for i in inputs], [spec(o) for o in out], op=op)


def test_operands_are_read_and_results_written():
    assert moved((3, 4), (4,), out=[(3, 4)]) == 4 * (12 + 4 + 12)


def test_absent_operands_unwanted_results_and_host_numbers_do_not_move():
    assert moved((3, 4), None, np.zeros(3), out=[(3, 4), None]) == 4 * (12 + 12)


def test_a_lookup_reads_the_rows_that_it_writes():
    rows = spec((5,), np.int64)

    assert moved((1000, 8), rows, out=[(5, 8)], op="Gather") == 4 * 40 + 40 + 4 * 40
    assert moved((2, 8), rows, out=[(5, 8)], op="Gather") == 4 * 16 + 40 + 4 * 40


def test_who_asks_for_a_shape_reads_no_elements():
    assert moved((1000, 8), out=[spec((2,), np.int64)], op="Shape") == 16
