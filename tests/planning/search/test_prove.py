from __future__ import annotations

import pytest
from cheapest import cheapest
from conftest import trials
from encoders import encoder_decoder
from exhaustive import least_extra
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tight_cases import case

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.prove import rounds
from gradtool.planning.search.staged_milp import Stages, Watched
from gradtool.planning.search.work_bound import chain, instants

TOLERANCE = 1e-6
EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def check(data):
    """The programme of any instants, with memory counted at any steps of its stages."""
    work, budget = case(data)
    chained = chain(work)
    chosen = data.draw(st.sets(st.sampled_from(chained), min_size=1))
    asked = instants(work, [place for place in chained if place in chosen])
    steps = st.integers(0, len(work.reads) - 1)
    pairs = st.builds(Watched, steps, st.sampled_from(sorted(chosen)))
    watched = sorted(data.draw(st.sets(pairs, max_size=8)))
    ignored = data.draw(st.sampled_from([0, 0, 2, 6]))

    optimum = least_extra(work, budget)
    solved = Stages(work, asked, budget, watched, ignored).solve()

    if solved is None:
        assert optimum is None
    else:
        assert optimum is None or solved.bound <= optimum + TOLERANCE


@pytest.mark.exhaustive
@settings(max_examples=trials(100), **EXAMPLES)
@given(st.data())
def test_no_programme_is_above_the_optimum_of_all_schedules(data):
    check(data)


@pytest.mark.slow
@settings(max_examples=3000, **EXAMPLES)
@given(st.data())
def test_no_programme_is_above_the_optimum_of_many_programs(data):
    check(data)


def proven(work, budget, known):
    """The strongest bound of some rounds, and the work of the best schedule."""
    bound, extra = 0, work.work_again(known)
    for each in rounds(work, budget, known, 60):
        assert each.bound is not None
        bound = max(bound, each.bound)
        if each.found is not None:
            assert work.runs(each.found)
            assert work.simulator.peak([work.order[p] for p in each.found]) <= budget
            assert work.work_again(each.found) < extra
            extra = work.work_again(each.found)
    return bound, extra


@pytest.mark.exhaustive
@settings(max_examples=trials(60), **EXAMPLES)
@given(st.data())
def test_rounds_stay_below_the_optimum_and_find_schedules_that_fit(data):
    """Whatever schedule is known: here one that computes all that a step needs anew."""
    work, budget = case(data)
    optimum = least_extra(work, budget)
    assume(optimum is not None)

    bound, extra = proven(work, budget, wasteful(work))

    assert bound <= optimum
    assert optimum <= extra


def wasteful(work):
    """What every step needs runs again right before it, if it may."""
    places = []
    for place in range(len(work.reads)):
        needed = ancestors(work, place)
        places += needed if all(work.repeatable[p] for p in needed) else []
        places.append(place)
    return places


def ancestors(work, place):
    """The steps that a step needs, in order."""
    needed, waiting = set(), list(work.reads[place])
    while waiting:
        maker = work.maker[waiting.pop()]
        if maker not in needed:
            needed.add(maker)
            waiting += work.reads[maker]
    return sorted(needed)


def test_a_schedule_that_computes_too_much_is_made_better():
    """Two steps run again for nothing: the programme finds what does without."""
    work = CostModel(encoder_decoder())
    places = list(work.order)
    known = [*places[:2], 0, 1, *places[2:]]

    bound, extra = proven(work, work.simulator.peak(places), known)

    assert (bound, extra) == (0, 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("percent", [70, 60, 50])
def test_an_encoder_and_decoder_is_planned_and_proven(percent):
    """One instant says a small part of what all of them say together."""
    work = CostModel(encoder_decoder())
    budget = work.simulator.peak(work.order) * percent // 100
    answer = cheapest(work.program, budget, order=work.order)
    known = list(answer.schedule.order)

    bound, extra = proven(work, budget, known)

    assert bound >= 0.99 * extra > 0
