from __future__ import annotations

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import SEARCHED, SMALL, lasting, problem, problems

from gradtool.planning.packing import greedy as module
from gradtool.planning.packing.greedy import best_fit, greedy, skyline
from gradtool.planning.packing.pack import height
from gradtool.planning.packing.problem import RANKS

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}

ONLY = {
    "best fit by size": [(1, 0, 3), (2, 0, 2), (4, 0, 0), (2, 4, 5), (3, 1, 3), (2, 3, 5),
                         (3, 2, 3)],
    "best fit by first use": [(1, 3, 4), (1, 3, 4), (4, 5, 5), (4, 1, 3), (3, 1, 4), (1, 4, 5),
                              (3, 4, 5)],
    "best fit by area": [(3, 4, 5), (2, 3, 4), (1, 1, 2), (2, 3, 5), (4, 2, 2), (1, 1, 1),
                         (2, 1, 3)],
}  # fmt: skip


def meet(part, one, other):
    return part.start[one] < part.stop[other] and part.start[other] < part.stop[one]


def gaps(used, size):
    """First byte and length of what is free and large enough; what is above all has no end."""
    top, begin = max(used, default=-1) + 1, 0
    for byte in sorted(used):
        if byte - begin >= size:
            yield begin, byte - begin
        begin = byte + 1
    yield top, float("inf")


@pytest.mark.parametrize("how", ONLY)
def test_each_best_fit_wins_somewhere(how):
    part = problem(ONLY[how])
    sizes = {name: height(part, offsets) for offsets, name in greedy(part)}

    assert [name for name, size in sizes.items() if size == min(sizes.values())] == [how]


def test_the_skyline_fills_the_lowest_place_first():
    """By size alone 3 would come before 2; 2 can lie lower.

    offset 4   CC
    offset 0  AABB   (A leaves before B comes)
    """
    part = problem([(4, 0, 1), (2, 2, 3), (3, 1, 2)])

    assert skyline(part, np.array([0, 2, 1])).tolist() == [0, 0, 4]


def test_the_smallest_gap_that_fits_is_taken():
    """Gaps of 2 and of 1 are free at step 1; 1 goes into the second."""
    part = problem([(4, 0, 1), (2, 0, 0), (3, 0, 1), (1, 0, 0), (2, 0, 1), (1, 1, 1)])
    offsets = best_fit(part, np.arange(6))

    assert offsets.tolist() == [0, 4, 6, 9, 10, 9]


@given(SMALL.map(lasting), st.sampled_from(RANKS))
@settings(max_examples=trials(60), **EXAMPLES)
def test_the_skyline_takes_whatever_lies_lowest_on_what_it_lives_with(spans, keys):
    for part in problems(spans):
        order = part.order(keys)
        offsets, placed, rest = skyline(part, order), [], order.tolist()
        while rest:
            below = {i: [j for j in placed if meet(part, i, j)] for i in rest}
            low = {i: max((offsets[js] + part.size[js]), default=0) for i, js in below.items()}
            item = min(rest, key=low.__getitem__)

            assert offsets[item] == low[item]
            placed.append(item)
            rest.remove(item)


@given(SMALL.map(lasting), st.sampled_from(RANKS))
@settings(max_examples=trials(60), **EXAMPLES)
def test_best_fit_takes_the_lowest_of_the_smallest_gaps(spans, keys):
    for part in problems(spans):
        order = part.order(keys).tolist()
        offsets = best_fit(part, np.array(order))
        for turn, item in enumerate(order):
            used = {
                byte
                for other in order[:turn] if meet(part, item, other)
                for byte in range(offsets[other], offsets[other] + part.size[other])
            }  # fmt: skip
            size = int(part.size[item])

            assert offsets[item] == min(gaps(used, size), key=lambda gap: (gap[1], gap[0]))[0]


def test_best_fit_goes_by_size_by_first_use_and_by_area():
    """Sizes 3 2 2 5, first uses 0 0 0 1, areas 3 4 2 5."""
    part = problem([(3, 0, 0), (2, 0, 1), (2, 0, 0), (5, 1, 1)])
    known = {name: offsets.tolist() for offsets, name in greedy(part) if "fit" in name}
    expected = {"size": [3, 0, 1, 2], "first use": [0, 1, 2, 3], "area": [3, 1, 0, 2]}

    assert known == {
        f"best fit by {name}": best_fit(part, np.array(order)).tolist()
        for name, order in expected.items()
    }


def test_each_skyline_goes_by_its_keys():
    part = problem(SEARCHED)
    known = {name: offsets.tolist() for offsets, name in greedy(part) if "skyline" in name}

    assert known == {f"skyline {keys}": skyline(part, part.order(keys)).tolist() for keys in RANKS}


@pytest.mark.parametrize(("pairs", "count"), [(0, 2), (7 * 7 * 3, 3), (7 * 7 * 9, 8)])
def test_large_problems_are_packed_in_fewer_ways(monkeypatch, pairs, count):
    monkeypatch.setattr(module, "MOST", pairs)

    assert len(list(greedy(problem(SEARCHED)))) == count
