from __future__ import annotations

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from packings import SMALL, lasting, problem, problems

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


@given(SMALL.map(lasting))
@settings(max_examples=trials(60), **EXAMPLES)
def test_sections_are_runs_of_steps_with_the_same_buffers(spans):
    """Sizes times their unit are those given, and so is the largest load."""
    for part in problems(spans):
        own = [spans[i] for i in part.members]
        steps = sorted({step for _, a, b in own for step in (a, b + 1)})
        loads = [sum(s for s, a, b in own if a <= step <= b) for step in steps[:-1]]

        assert [steps[i] for i in part.start] == [a for _, a, _ in own]
        assert [steps[i] for i in part.stop] == [b + 1 for _, _, b in own]
        assert (part.size * part.unit).tolist() == [size for size, *_ in own]
        assert part.length.tolist() == [b - a + 1 for _, a, b in own]
        assert (part.profile * part.unit).tolist() == loads
        assert part.peak_live * part.unit == max(loads)
        assert np.gcd.reduce(part.size) == 1


def test_parts_share_no_step_and_the_largest_load_comes_first():
    """0 ends where 1 begins; 3 is empty; 2 and 4 are alone."""
    found = problems([(4, 0, 1), (6, 1, 2), (12, 3, 3), (0, 0, 9), (8, 4, 4)])

    assert [part.members.tolist() for part in found] == [[2], [0, 1], [4]]
    assert [(part.unit, part.size.tolist()) for part in found] == [(12, [1]), (2, [2, 3]), (8, [1])]


def test_buffers_of_a_part_are_in_the_order_given():
    (part,) = problems([(1, 3, 5), (1, 0, 4), (1, 2, 2)])

    assert part.members.tolist() == [0, 1, 2]


@pytest.mark.parametrize("count", range(1, 12))
def test_the_largest_load_of_a_window_is_found_in_profiles_of_any_length(count):
    """Loads rise by one up to the last section, in each of which one buffer begins."""
    spans = [(1, i, count - 1) for i in range(count)] + [(1, i, i) for i in range(count)]
    part = problem(spans)
    wanted = [part.profile[a:b].max() for a, b in zip(part.start, part.stop, strict=True)]

    assert part.order("T").tolist() == np.argsort([-w for w in wanted], kind="stable").tolist()


def test_orders_go_by_sections_and_by_size_too():
    """Of 1, 3 and 1 sections; 1 and 2 are of one length in steps."""
    part = problem([(1, 0, 3), (2, 4, 5), (3, 0, 9), (1, 6, 7)])

    assert part.order("C").tolist() == [2, 0, 1, 3]
    assert part.order("S").tolist() == [2, 1, 0, 3]
    assert part.order("CAT").tolist() == [2, 1, 0, 3]
    assert part.order("L").tolist() == [2, 0, 1, 3]


def test_orders_go_by_load_length_and_area():
    """Loads are 3, 3, 5, 2; lengths 2, 4, 1, 1; areas 2, 8, 3, 0."""
    part = problem([(1, 0, 1), (2, 0, 3), (3, 2, 2)])

    assert part.profile.tolist() == [3, 5, 2]
    assert part.order("TLA").tolist() == [1, 2, 0]
    assert part.order("LAT").tolist() == [1, 0, 2]
    assert part.order("A").tolist() == [1, 2, 0]


@given(SMALL.map(lasting))
@settings(max_examples=trials(60), **EXAMPLES)
def test_the_largest_load_around_a_buffer_orders_it(spans):
    for part in problems(spans):
        wanted = [-part.profile[a:b].max() for a, b in zip(part.start, part.stop, strict=True)]

        assert part.order("T").tolist() == np.argsort(wanted, kind="stable").tolist()
