"""Curves as text."""

from hypothesis import given
from hypothesis import strategies as st

from gradtool.text.plot import plot

NUMBERS = st.none() | st.floats(-1e30, 1e30) | st.floats(1e-6, 1e6)
POINTS = st.lists(NUMBERS, max_size=300).map(lambda values: list(enumerate(values, 1)))


@given(POINTS, st.integers(30, 120), st.integers(2, 12), st.booleans(), st.booleans())
def test_a_plot_keeps_to_its_width_and_height(points, width, height, linear, unicode):
    lines = plot("loss", points, width, height, linear=linear, unicode=unicode)

    if all(value is None for _, value in points):
        assert lines == []
        return
    assert len(lines) == height + 3
    assert all(len(line) <= width for line in lines)
    assert unicode or all(line.isascii() for line in lines)
    assert any("•" in line or "*" in line for line in lines[1:-2])


@given(st.integers(2, 400), st.booleans())
def test_what_falls_falls(count, linear):
    lines = plot("loss", [(n, 1000.0 / n) for n in range(1, count + 1)], 70, 8, linear=linear)
    rows = [[c for c, mark in enumerate(line.partition("│")[2]) if mark == "•"]
            for line in lines[1:-2]]  # fmt: skip

    columns = [c for row in rows for c in row]
    assert columns == sorted(columns)
    assert len(set(columns)) == len(columns) == min(count, 70 - 2 - lines[1].index("│") + 1)


def test_numbers_far_apart_are_drawn_by_their_logarithms():
    falling = [(n, 10.0**-n) for n in range(1, 9)]

    assert plot("loss", falling, 40, 4)[0] == "loss (logarithmic)"
    assert plot("loss", falling, 40, 4, linear=True)[0] == "loss"
    assert plot("loss", [(1, 1.0), (2, 49.0)], 40, 4)[0] == "loss"
