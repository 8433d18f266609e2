import numpy as np
import pytest
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

from gradtool.native import embedding

pytestmark = [needs_library, *each_instruction_set]
SHAPES = pytest.mark.parametrize(
    ("rows", "width", "count"), [(1, 1, 5), (7, 16, 0), (10, 33, 200), (300, 64, 1000), (5, 7, 64)]
)


def drawn(rows, width, count):
    rng = np.random.default_rng(rows)
    return normal(rng, rows, width), rng.integers(-rows, rows, count), normal(rng, count, width)


@SHAPES
def test_rows_are_those_of_numpy(rows, width, count):
    table, index, _ = drawn(rows, width, count)
    wrong = np.full(1, -1)
    (y,) = run(
        lambda y, _: embedding.gather(table, index, y, wrong),
        (count, width),
        inputs=(table, index),
    )

    assert np.array_equal(y, table[index])
    assert wrong == [0]


@SHAPES
def test_the_gradient_is_a_sum_in_order(rows, width, count):
    table, index, dy = drawn(rows, width, count)
    wrong = np.full(1, -1)
    (found,) = run(
        lambda made, _: embedding.gradient(dy, index, made, wrong),
        table.shape,
        inputs=(dy, index),
    )
    exact, in_order = np.zeros(table.shape), np.zeros_like(table)
    np.add.at(exact, index, dy)
    for at, line in zip(index, dy, strict=True):
        in_order[at] += line

    assert np.array_equal(found, in_order)
    assert relative_error(found, exact) < 1e-5
    assert wrong == [0]


def test_numbers_beyond_the_table_are_counted_and_read_nothing():
    table, dy = np.ones((3, 20), np.float32), np.ones((4, 20), np.float32)
    index, wrong = np.array([2, 3, -4, -1]), np.zeros(1, np.int64)
    (y,) = run(lambda y, _: embedding.gather(table, index, y, wrong), (4, 20))
    assert wrong == [2]

    (found,) = run(
        lambda made, _: embedding.gradient(dy, index, made, wrong),
        table.shape,
    )
    assert wrong == [2]
    assert y[:, 0].tolist() == [1, 0, 0, 1]
    assert found[:, 0].tolist() == [0, 0, 2]
