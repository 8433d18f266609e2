from __future__ import annotations

import itertools
import sys
from typing import ClassVar

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import ONLY_SEARCHED, SEARCHED, SMALL, columns, lasting, least, load, problem

from gradtool.errors import UsageError
from gradtool.planning.liveness import Lifetime
from gradtool.planning.packing import PLAN, Effort, load_profile, pack, place
from gradtool.planning.packing.greedy import greedy
from gradtool.planning.packing.pack import Climb, height
from gradtool.planning.packing.problem import RANKS

module = sys.modules["gradtool.planning.packing.pack"]
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
    assert packing.peak_live == load(spans) <= packing.size
    assert packing.proven or packing.size > packing.peak_live


# ------------------------------------------------------------------------ worked by hand


def test_what_is_freed_is_used_again():
    """The second falls into the place of the first; the third is live with both.

    offset 2  CCCC
    offset 0  A B
    """
    packing = pack([2, 2, 1], [0, 2, 0], [1, 3, 3])

    assert (packing.size, packing.peak_live, packing.proven) == (3, 3, True)


def test_nothing_takes_nothing():
    packing = pack([], [], [])

    assert (packing.offsets, packing.size, packing.peak_live, packing.proven) == ((), 0, 0, True)


def test_an_empty_buffer_takes_no_room():
    packing = pack([0, 5, 0], [0, 0, 3], [9, 1, 3])

    assert (packing.offsets, packing.size) == ((0, 0, 0), 5)


def test_parts_that_share_no_step_share_memory():
    packing = pack([4, 7], [0, 1], [0, 1])

    assert packing.offsets == (0, 0)
    assert packing.size == 7


def test_the_search_finds_what_no_order_does():
    packing = pack(*columns(SEARCHED), effort=SEARCHING)

    assert (packing.size, packing.peak_live, packing.proven) == (7, 7, True)
    assert packing.how.startswith("search")


def test_without_work_the_load_stays_unproven():
    packing = pack(*columns(SEARCHED), effort=Effort(work=0))

    assert (packing.size, packing.peak_live, packing.proven) == (8, 7, False)


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


def test_what_takes_all_bytes_that_can_be_counted_is_refused():
    half = 1 << 62

    assert pack([half, half - 1], [0, 1], [0, 1]).size == half
    with pytest.raises(UsageError, match="values take 9223372036854775808 bytes in all"):
        pack([half, half], [0, 1], [0, 1])


# ----------------------------------------------------------------------------- properties


@given(LARGE.map(lasting))
@settings(max_examples=trials(60), **EXAMPLES)
def test_no_two_live_buffers_overlap(spans):
    check(spans, pack(*columns(spans), effort=Effort(work=20_000)))


@given(SMALL.map(lasting))
@settings(max_examples=trials(60), **EXAMPLES)
def test_the_least_arena_is_found_and_proven(spans):
    packing = pack(*columns(spans))

    check(spans, packing)
    assert packing.proven
    assert packing.size == least(spans)


@given(LARGE.map(lasting), st.integers(1, 1000))
@settings(max_examples=trials(30), **EXAMPLES)
def test_a_hint_never_costs_memory_where_all_is_tried(spans, capacity):
    plain = pack(*columns(spans), effort=Effort(work=0))
    hinted = pack(*columns(spans), capacity=capacity, effort=Effort(work=50_000))

    check(spans, hinted)
    assert hinted.size <= plain.size


@given(LARGE.map(lasting))
@settings(max_examples=trials(30), **EXAMPLES)
def test_sizes_in_lines_pack_as_sizes_do(spans):
    effort = Effort(work=20_000)
    plain = pack(*columns(spans), effort=effort)
    scaled = pack(*columns([(64 * s, a, b) for s, a, b in spans]), effort=effort)

    assert scaled.size == 64 * plain.size
    assert scaled.offsets == tuple(64 * o for o in plain.offsets)


@given(LARGE.map(lasting))
@settings(max_examples=trials(30), **EXAMPLES)
def test_lifetimes_and_columns_are_packed_alike(spans):
    buffers = [Lifetime(str(i), "activations", *span) for i, span in enumerate(spans)]

    assert place(buffers) == pack(*columns(spans), effort=PLAN)
    assert load_profile(buffers, 40).max(initial=0) == place(buffers).peak_live


# ------------------------------------------------------------------------- step by step


def stacked(spans):
    """A problem, and offsets for it as high as they can be."""
    part = problem(spans)
    return part, np.cumsum(part.size) - part.size


class Told(Climb):
    """A climb that is told how far it comes, and writes down what it is asked."""

    more = 0
    asked: ClassVar[list[object]] = []

    def run(self, hint):
        self.asked += [self.bound, self.work, hint]
        self.bound += self.more


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setattr(module, "Climb", Told)
    monkeypatch.setattr("gradtool.planning.packing.outward.outward", lambda *_: None)
    monkeypatch.setattr(Told, "asked", [])
    return Told


def test_nothing_is_searched_where_an_order_reaches_the_load(monkeypatch):
    monkeypatch.setattr(module, "_outward", None)
    packing = pack([2, 2, 1], [0, 2, 0], [1, 3, 3])

    assert packing.how == f"skyline {RANKS[0]}"


def test_the_first_of_the_best_orders_counts(told):
    part = problem(SEARCHED)
    heights = {name: height(part, offsets) for offsets, name in greedy(part)}
    packing = pack(*columns(SEARCHED), effort=Effort(work=0))

    assert packing.how == min(heights, key=heights.__getitem__)
    assert packing.size == min(heights.values())
    assert len(told.asked) == 3


def test_the_search_is_told_bounds_and_hints_in_units_of_the_part(told):
    pack(*columns([(64 * s, a, b) for s, a, b in SEARCHED]), capacity=64 * 9, effort=Effort(work=5))

    assert told.asked == [7, 5, 9]


@pytest.mark.parametrize(
    ("enough", "more", "bound"),
    [
        pytest.param(0, 0, 7, id="nothing is refuted"),
        pytest.param(0, 1, 8, id="the load is refuted"),
        pytest.param(7, 1, 8, id="as much as is needed is refuted"),
    ],
)
def test_only_what_was_refuted_is_a_bound_above_the_load(told, monkeypatch, enough, more, bound):
    monkeypatch.setattr(told, "more", more)

    assert module._tight(problem(SEARCHED), enough, None, Effort(work=0))[1] == bound


def test_what_other_parts_need_anyway_is_no_bound(told, monkeypatch):
    """Buffers stacked to 14 are enough at 9: nothing is proven of 9."""
    part, tall = stacked(SEARCHED)
    monkeypatch.setattr(module, "greedy", lambda _: iter([(tall, "stacked")]))

    assert module._tight(part, 9, None, Effort(work=0))[1] == 7
    assert told.asked[0] == 9
    assert module._tight(part, 14, None, Effort(work=0))[2] == "stacked"
    assert len(told.asked) == 3


def test_a_part_is_packed_only_as_tightly_as_those_before_it_need(monkeypatch):
    """Six units of 2 bytes are stacked: that will do for 12 bytes, and not for 10."""
    part, tall = stacked([(2, 0, 0), (4, 0, 0), (4, 1, 1), (2, 0, 1)])
    monkeypatch.setattr(module, "greedy", lambda _: iter([(tall, "stacked"), (tall * 0, "flat")]))

    assert part.unit == 2
    assert [module._tight(part, enough, None, PLAN)[2] for enough in (12, 10)] == [
        "stacked", "flat",
    ]  # fmt: skip


def test_of_parts_of_one_size_the_first_says_how():
    after = [(s, a + 2, b + 2) for s, a, b in SEARCHED]
    packing = pack(*columns([(7, 0, 0), *after]))

    assert (packing.size, packing.how) == (7, f"skyline {RANKS[0]}")
    assert pack(*columns(SEARCHED)).how != packing.how
    assert pack([], [], []).how == "nothing to place"


@pytest.mark.parametrize(
    ("fits", "capacities", "reached", "how"),
    [
        pytest.param(99, [7, 10, 12], 14, "stacked", id="nothing"),
        pytest.param(12, [7, 10, 12], 12, "outward", id="the last"),
        pytest.param(10, [7, 10, 8], 10, "outward", id="the second"),
        pytest.param(7, [7], 7, "outward", id="the load"),
    ],
)
def test_packing_outwards_halves_what_is_above_the_load(
    monkeypatch, fits, capacities, reached, how
):
    """Of 200 pairs the load has 180, each of two capacities above it 10."""
    part, tall = stacked(SEARCHED)
    asked = []

    def outward(problem, capacity, work):
        asked.append((capacity, work))
        return np.full(len(problem.size), capacity) - problem.size if capacity >= fits else None

    monkeypatch.setattr("gradtool.planning.packing.outward.outward", outward)
    found, name = module._outward(part, 7, 200, (tall, "stacked"))

    assert asked == list(zip(capacities, (180, 10, 10), strict=False))
    assert (height(part, found), name) == (reached, how)


def test_what_no_order_and_no_repetition_places_is_searched():
    assert pack(*columns(ONLY_SEARCHED), effort=Effort(PLAN.work)).how.startswith("search")
