from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from gradtool.planning.search.local.hinted import Hinted

pytestmark = pytest.mark.extra

pytest.importorskip("ortools", reason="hinted models need the extra solver")


def endless():
    """A market split (Cornuéjols and Dawande 1998): all is known but an optimum; and its goal."""
    model = Hinted(10**6)
    bought = [model.literal(now=False) for _ in range(50)]
    goal = 0
    for amounts in np.random.default_rng(0).integers(0, 100, (6, 50)).tolist():
        half = sum(amounts) // 2
        split = sum(a * b for a, b in zip(amounts, bought, strict=True))
        short, more = model.slot(half), model.slot(0)
        model.model.add(split + short - more == half)
        goal += short + more
    return model, goal


def test_the_least_value_is_found_and_proven():
    model = Hinted(9)
    number = model.number(3, 7, 5)
    model.model.add(number >= 4)

    assert model.minimize(number, 1, lambda: False)
    assert (model.value(number), model.proven) == (4, True)


def test_there_may_be_no_solution():
    model = Hinted(9)
    slot = model.slot(2)
    model.model.add(slot == 10)

    assert not model.minimize(slot, 1, lambda: False)
    assert not model.proven


def test_time_that_is_counted_ends_a_search_with_a_solution():
    model, goal = endless()

    assert model.minimize(goal, 0.1, lambda: False)
    assert not model.proven


def test_a_search_that_is_to_stop_ends_with_what_it_has():
    """It has the hint at least, and would go on for ever."""
    model, goal = endless()
    asked = iter((False, False, True))

    assert model.minimize(goal, math.inf, lambda: next(asked, True))
    assert not model.proven


def test_an_interrupt_ends_a_search():
    model, goal = endless()
    threads = threading.active_count()

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.minimize(goal, math.inf, interrupt)
    assert threading.active_count() == threads
