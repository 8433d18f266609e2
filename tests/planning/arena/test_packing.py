from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import ONLY_SEARCHED, SEARCHED, SMALL, columns, lasting, least, load

from gradtool.errors import UsageError
from gradtool.planning.arena import PLAN, SEARCH, Effort, load_profile, overlap, pack, place
from gradtool.planning.liveness import Lifetime
from gradtool.planning.plan import Buffer

SEARCHING = Effort(work=PLAN.work)
EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
LARGE = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 20), st.integers(0, 12)), max_size=40)


def check(spans, packing):
    """No two live buffers overlap, and the figures are those of the offsets."""
    placed = [(o, o + s, a, b) for (s, a, b), o in zip(spans, packing.offsets, strict=True) if s]
    for (low, high, a, b), (under, over, c, d) in itertools.combinations(placed, 2):
        assert high <= under or over <= low or b < c or d < a
    assert all(low >= 0 for low, *_ in placed)
    assert packing.size == max((high for _, high, *_ in placed), default=0)
    assert packing.load == load(spans) <= packing.size
    assert packing.proven or packing.size > packing.load


# ------------------------------------------------------------------------ worked by hand


def test_what_is_freed_is_used_again():
    """The second falls into the place of the first; the third is live with both.

    offset 2  CCCC
    offset 0  A B
    """
    packing = pack([2, 2, 1], [0, 2, 0], [1, 3, 3])

    assert (packing.size, packing.load, packing.proven) == (3, 3, True)


def test_nothing_takes_nothing():
    packing = pack([], [], [])

    assert (packing.offsets, packing.size, packing.load, packing.proven) == ((), 0, 0, True)


def test_an_empty_buffer_takes_no_room():
    packing = pack([0, 5, 0], [0, 0, 3], [9, 1, 3])

    assert (packing.offsets, packing.size) == ((0, 0, 0), 5)


def test_parts_that_share_no_step_share_memory():
    packing = pack([4, 7], [0, 1], [0, 1])

    assert packing.offsets == (0, 0)
    assert packing.size == 7


def test_the_search_finds_what_no_order_does():
    packing = pack(*columns(SEARCHED), effort=SEARCHING)

    assert (packing.size, packing.load, packing.proven) == (7, 7, True)
    assert packing.how.startswith("search")


def test_without_work_the_load_stays_unproven():
    packing = pack(*columns(SEARCHED), effort=Effort(work=0))

    assert (packing.size, packing.load, packing.proven) == (8, 7, False)


@pytest.mark.parametrize(
    ("sizes", "first", "last"),
    [
        pytest.param([1], [2], [1], id="it ends before it begins"),
        pytest.param([-1], [0], [1], id="its size is negative"),
        pytest.param([1, 2], [0], [1], id="a column is short"),
    ],
)
def test_what_is_no_buffer_is_refused(sizes, first, last):
    with pytest.raises(UsageError, match="pack"):
        pack(sizes, first, last)


# ----------------------------------------------------------------------------- properties


@given(LARGE.map(lasting))
@settings(max_examples=60, **EXAMPLES)
def test_no_two_live_buffers_overlap(spans):
    check(spans, pack(*columns(spans), effort=Effort(work=20_000)))


@given(SMALL.map(lasting))
@settings(max_examples=60, **EXAMPLES)
def test_the_least_arena_is_found_and_proven(spans):
    packing = pack(*columns(spans))

    check(spans, packing)
    assert packing.proven
    assert packing.size == least(spans)


@given(LARGE.map(lasting), st.integers(1, 1000))
@settings(max_examples=30, **EXAMPLES)
def test_a_hint_never_costs_memory_where_all_is_tried(spans, capacity):
    plain = pack(*columns(spans), effort=Effort(work=0))
    hinted = pack(*columns(spans), capacity=capacity, effort=Effort(work=50_000))

    check(spans, hinted)
    assert hinted.size <= plain.size


@given(LARGE.map(lasting))
@settings(max_examples=30, **EXAMPLES)
def test_sizes_in_lines_pack_as_sizes_do(spans):
    effort = Effort(work=20_000)
    plain = pack(*columns(spans), effort=effort)
    scaled = pack(*columns([(64 * s, a, b) for s, a, b in spans]), effort=effort)

    assert scaled.size == 64 * plain.size
    assert scaled.offsets == tuple(64 * o for o in plain.offsets)


@given(LARGE.map(lasting))
@settings(max_examples=30, **EXAMPLES)
def test_lifetimes_and_columns_are_packed_alike(spans):
    buffers = [Lifetime(str(i), "activations", *span) for i, span in enumerate(spans)]

    assert place(buffers) == pack(*columns(spans), effort=PLAN)
    assert load_profile(buffers, 40).max(initial=0) == place(buffers).load


def test_two_buffers_that_share_bytes_and_a_step_are_told():
    a, b, c = (
        Buffer(name, "activations", 64, offset, first, last)
        for name, offset, first, last in (("a", 0, 0, 2), ("b", 64, 1, 2), ("c", 32, 2, 3))
    )

    assert overlap((a, b)) is None
    assert overlap((a, c)) == (a, c)


# ------------------------------------------------------------------------ what is installed


def test_planning_imports_nothing_of_the_extra():
    code = f"""
import sys
from gradtool.planning.arena import PLAN, pack
assert pack(*{columns(ONLY_SEARCHED)}, effort=PLAN).how.startswith("search")
print([name for name in ("numba", "ortools") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_without_the_extra_the_search_still_runs(monkeypatch):
    monkeypatch.setattr("gradtool.planning.arena.compiled.available", lambda: False)
    monkeypatch.setattr("gradtool.planning.arena.cpsat.available", lambda _: False)
    packing = pack(*columns(SEARCHED), effort=SEARCH)

    check(SEARCHED, packing)
    assert packing.size == 7
