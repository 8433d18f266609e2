from __future__ import annotations

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from native_calls import needs_library
from packings import SEARCHED, columns, lasting

from gradtool.native import library
from gradtool.planning.packing import Effort, pack
from gradtool.planning.packing.gaps import fill
from gradtool.planning.packing.problem import parts
from gradtool.planning.packing.squeaky import FEWEST, PLACE, WAYS, _by_weight, squeaky

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
@settings(max_examples=trials(100), **EXAMPLES)
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
@settings(max_examples=trials(100), **EXAMPLES)
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


@given(st.lists(st.integers(0, 40), min_size=2, max_size=40), st.integers(1, 9))
@settings(max_examples=trials(100), **EXAMPLES)
def test_the_smallest_find_room_around_the_others(small, large):
    """Those of little weight have a place after the rest, above it where there is no room."""
    count = len(small)
    sizes = np.array([*small, *[1000 * (1 + k % 5) for k in range(count)]])
    first = np.array([*range(count), *range(0, 2 * count, 2)])
    for part in parts(first, first + large, sizes):
        turn = len(part.size) * (len(part.size) + PLACE)
        found = squeaky(part, part.peak_live, FEWEST * len(WAYS) * turn)

        assert not overlap(part, found)
        assert (found >= 0).all()
        heavy, light = _by_weight(part, part.peak_live // 10)
        assert sorted([*heavy, *light]) == list(range(len(part.size)))
        assert not light.size or part.of(light).peak_live <= part.peak_live // 10
        assert part.size[light].max(initial=0) <= part.size[heavy].min()


def test_without_work_for_one_turn_there_is_nothing():
    (part,) = problems(SEARCHED)

    assert squeaky(part, part.peak_live, PLACE) is None


def test_what_had_no_room_comes_first_the_next_time():
    packing = pack(*columns(SEARCHED), effort=Effort(work=0, repeating=PLENTY))

    assert (packing.size, packing.how) == (7, "squeaky")


@needs_library
@given(SPANS.map(lasting))
@settings(max_examples=trials(100), **EXAMPLES)
def test_threads_change_nothing(spans):
    """Each way in a thread of its own finds what they find one after the other."""
    for part in problems(spans):
        work = 2 * FEWEST * len(WAYS) * len(part.size) * (len(part.size) + PLACE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(library, "threads", lambda: 1)
            alone = squeaky(part, part.peak_live, work)
            patch.setattr(library, "threads", lambda: 2)
            assert np.array_equal(squeaky(part, part.peak_live, work), alone)
