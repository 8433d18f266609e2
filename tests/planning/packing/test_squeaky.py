from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import SEARCHED, columns, lasting

from gradtool.native import library
from gradtool.planning.packing import Effort, pack
from gradtool.planning.packing.gaps import fill
from gradtool.planning.packing.problem import parts
from gradtool.planning.packing.squeaky import FEWEST, PLACE, WAYS, squeaky

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
SPANS = st.lists(
    st.tuples(st.integers(1, 90), st.integers(0, 20), st.integers(0, 12)), min_size=1, max_size=40
)
PLENTY = 10**7


def problems(spans):
    sizes, first, last = (np.array(c, dtype=np.int64) for c in columns(spans))
    return list(parts(first, last, sizes))


def overlap(part, found, among=slice(None)):
    """Whether two of the buffers share bytes and a section."""
    start, stop, size, low = (c[among] for c in (part.start, part.stop, part.size, found))
    high = low + size
    both = (start[:, None] < stop) & (start < stop[:, None])
    both &= (low[:, None] < high) & (low < high[:, None])
    np.fill_diagonal(both, val=False)
    return both.any()


@given(SPANS.map(lasting))
@settings(max_examples=100, **EXAMPLES)
def test_each_buffer_lies_in_the_lowest_gap(spans):
    for part in problems(spans):
        found = np.empty_like(part.size)
        fill(part, np.arange(len(part.size)), found)

        assert not overlap(part, found)
        for item, offset in enumerate(found.tolist()):
            lower = found.copy()
            for to in range(offset):
                lower[item] = to
                assert overlap(part, lower, slice(item + 1))


@given(SPANS.map(lasting))
@settings(max_examples=100, **EXAMPLES)
def test_no_way_begins_better_than_what_is_found(spans):
    """All ways take part once there is work for all of them, and each packs at least once."""
    for part in problems(spans):
        turn = len(part.size) * (len(part.size) + PLACE)
        found = squeaky(part, part.peak_live, FEWEST * len(WAYS) * turn)
        assert not overlap(part, found)
        reached = int((found + part.size).max())
        assert reached >= part.peak_live
        for keys, _ in WAYS:
            first = np.empty_like(part.size)
            fill(part, part.order(keys), first)
            assert reached <= int((first + part.size).max())


def test_without_work_for_one_turn_there_is_nothing():
    (part,) = problems(SEARCHED)

    assert squeaky(part, part.peak_live, PLACE) is None


def test_what_had_no_room_comes_first_the_next_time():
    packing = pack(*columns(SEARCHED), effort=Effort(work=0, repeating=PLENTY))

    assert (packing.size, packing.how) == (7, "squeaky")


@given(SPANS.map(lasting), st.integers(1, 3))
@settings(max_examples=100, **EXAMPLES)
def test_threads_change_nothing(spans, threads):
    """Each way in a thread of its own finds what they find one after the other."""
    for part in problems(spans):
        work = 2 * FEWEST * len(WAYS) * len(part.size) * (len(part.size) + PLACE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(library, "threads_asked", lambda: 1)
            alone = squeaky(part, part.peak_live, work)
            patch.setattr(library, "threads_asked", lambda: threads)
            patch.setattr("gradtool.planning.packing.squeaky._APART", 0)
            assert np.array_equal(squeaky(part, part.peak_live, work), alone)
