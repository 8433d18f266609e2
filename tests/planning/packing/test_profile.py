from __future__ import annotations

import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from gradtool.planning.liveness import Lifetime
from gradtool.planning.packing import load_profile, overlap
from gradtool.planning.plan import Buffer

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def test_a_load_is_what_lives_at_a_step_first_and_last_included():
    spans = [(2, 0, 1), (3, 1, 2), (5, 1, 1)]
    buffers = [Lifetime(str(i), "activations", *span) for i, span in enumerate(spans)]

    assert load_profile(buffers, 4).tolist() == [2, 10, 3, 0]
    assert load_profile([], 2).tolist() == [0, 0]


def test_a_program_without_steps_has_one_load():
    assert load_profile([Lifetime("x", "inputs", 7, 0, 0)], 0).tolist() == [7]


def buffer(name, offset, size, first, last):
    return Buffer(name, "activations", size, offset, first, last)


@pytest.mark.parametrize(
    ("other", "shares"),
    [
        pytest.param((64, 64, 1, 2), False, id="above"),
        pytest.param((63, 64, 1, 2), True, id="one byte above its top"),
        pytest.param((0, 64, 3, 4), False, id="later"),
        pytest.param((0, 64, 2, 4), True, id="from its last step on"),
        pytest.param((8, 8, 1, 1), True, id="inside"),
    ],
)
def test_two_buffers_that_share_bytes_and_a_step_are_told(other, shares):
    a, b = buffer("a", 0, 64, 1, 2), buffer("b", *other)

    assert overlap((a, b)) == ((a, b) if shares else None)
    assert overlap((b, a)) == ((b, a) if shares else None)


def test_the_first_pair_that_overlaps_is_told():
    a, b, c, d = (buffer(n, o, 64, 0, 0) for n, o in (("a", 128), ("b", 0), ("c", 256), ("d", 32)))

    assert overlap((a, b, c, d)) == (b, d)
    assert overlap((d, c, b, a)) == (d, b)
    assert overlap(()) is None


BUFFERS = st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 3), st.integers(0, 2))


@given(st.lists(BUFFERS, max_size=5))
@settings(max_examples=trials(60), **EXAMPLES)
def test_buffers_overlap_where_a_byte_of_a_step_is_held_twice(drawn):
    spans = [(offset, size, first, first + more) for offset, size, first, more in drawn]
    held = [
        (byte, step)
        for offset, size, first, last in spans
        for byte in range(offset, offset + size)
        for step in range(first, last + 1)
    ]
    found = overlap([buffer(str(i), *span) for i, span in enumerate(spans)])

    assert (found is not None) == (len(held) > len(set(held)))
