from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import OUT_OF_REACH, SEARCHED, columns, lasting, load

from gradtool.planning.packing import Effort, pack
from gradtool.planning.packing.outward import PLACE, Filling, apart, outward
from gradtool.planning.packing.problem import parts
from gradtool.planning.packing.stacks import chain, chains, stacks

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
LARGE = st.lists(st.tuples(st.integers(1, 90), st.integers(0, 20), st.integers(0, 12)), max_size=40)
PLENTY = 10**7


def problems(spans):
    sizes, first, last = (np.array(c, dtype=np.int64) for c in columns(spans))
    return list(parts(first, last, sizes))


def problem(spans):
    (found,) = problems(spans)
    return found


def share(part, found, placed):
    """Whether two of the placed buffers share bytes and a section."""
    start, stop = part.start[placed], part.stop[placed]
    low, high = found[placed], found[placed] + part.size[placed]
    both = (start[:, None] < stop) & (start < stop[:, None])
    both &= (low[:, None] < high) & (low < high[:, None])
    np.fill_diagonal(both, val=False)
    return both.any()


# --------------------------------------------------------------------------------- stacks


def test_a_chain_nests_and_is_the_heaviest():
    """[0, 9) holds [1, 8) holds [3, 4); [2, 9) would be inside the first only."""
    start, stop = np.array([3, 0, 2, 1]), np.array([4, 9, 9, 8])

    assert chain(start, stop, np.array([1, 1, 1, 1])).tolist() == [1, 3, 0]
    assert chain(start, stop, np.array([1, 1, 5, 1])).tolist() == [1, 2, 0]


def test_what_leaves_frees_one_room_between_the_chains():
    """The first two nest, and so do the last two, which are born later and live longer.

    step    0 1 2 3 4
            A A A A .
            . B B . .
            . . C C C
            . . D D .
    """
    part = problem([(4, 0, 3), (3, 1, 2), (2, 2, 4), (1, 2, 3)])
    up, down = chains(part.start, part.stop, part.size)

    assert (up.tolist(), down.tolist()) == ([0, 1], [2, 3])


@given(LARGE.map(lasting))
@settings(max_examples=trials(40), **EXAMPLES)
def test_stacks_have_no_gaps_but_one(spans):
    for part in problems(spans):
        peak = int(part.profile.argmax())
        (live,) = np.nonzero((part.start <= peak) & (part.stop > peak))
        for found in islice(stacks(part, live, part.peak_live + 5), 5):
            assert np.flatnonzero(found >= 0).tolist() == live.tolist()
            assert not share(part, found, live)
            low, high = np.sort(found[live]), np.sort(found[live] + part.size[live])
            rooms = np.append(low, part.peak_live + 5) - np.append([0], high)
            assert np.count_nonzero(rooms) == 1


# -------------------------------------------------------------------------------- outward


@given(LARGE.map(lasting))
@settings(max_examples=trials(40), **EXAMPLES)
def test_what_is_found_lies_within_the_capacity_and_shares_nothing(spans):
    for part in problems(spans):
        found = outward(part, part.peak_live, 400 * PLACE)
        if found is not None:
            assert found.min() >= 0
            assert (found + part.size).max() <= part.peak_live
            assert not share(part, found, np.arange(len(part.size)))


@given(LARGE.map(lasting))
@settings(max_examples=trials(20), **EXAMPLES)
def test_room_for_everything_is_enough(spans):
    for part in problems(spans):
        assert outward(part, int(part.size.sum()), PLENTY) is not None


def test_what_no_order_places_is_found_within_the_load():
    packing = pack(*columns(SEARCHED), effort=Effort(work=0, filling=PLENTY))

    assert (packing.size, packing.proven, packing.how) == (load(SEARCHED), True, "outward")


def test_above_the_load_the_least_is_approached():
    packing = pack(*columns(OUT_OF_REACH), effort=Effort(work=0, filling=PLENTY))

    assert (packing.peak_live, packing.size, packing.proven) == (5, 6, False)


def test_it_stops_where_its_work_is_spent():
    part = problem(OUT_OF_REACH)

    assert outward(part, part.peak_live, PLENTY) is None
    assert outward(part, int(part.size.sum()), PLACE) is None


@pytest.mark.parametrize("empty", [True, False])
def test_sets_share_no_section_and_the_fullest_comes_first(empty):
    part = problem([(1, 0, 1), (2, 1, 1), (9, 0, 6), (3, 4, 5), (2, 5, 6)])
    rest = np.array([], dtype=np.int64) if empty else np.array([0, 1, 3, 4])

    assert [those.tolist() for those in apart(part, rest)] == ([] if empty else [[3, 4], [0, 1]])


def test_what_found_no_place_goes_first_the_next_time(monkeypatch):
    """Neither by size nor by load nor by area, from either side, do all find a place at once."""
    part = problem([(3, 4, 7), (3, 2, 3), (2, 3, 4), (4, 1, 2), (4, 0, 1)])
    filled = []
    for turns in (1, 3):
        monkeypatch.setattr("gradtool.planning.packing.outward.TURNS", turns)
        found = np.full(5, -1)
        filled.append(Filling(part, part.peak_live, PLENTY).fill(np.arange(5), found))

    assert filled == [False, True]
    assert not share(part, found, np.arange(5))
