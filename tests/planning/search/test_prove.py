from __future__ import annotations

import pytest
from exhaustive import least_extra
from hypothesis import given, settings
from hypothesis import strategies as st
from tight_cases import case

from gradtool.planning.search.stages import Stages, Watched
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


@settings(max_examples=150, **EXAMPLES)
@given(st.data())
def test_no_programme_is_above_the_optimum_of_all_schedules(data):
    check(data)


@pytest.mark.slow
@settings(max_examples=3000, **EXAMPLES)
@given(st.data())
def test_no_programme_is_above_the_optimum_of_many_programs(data):
    check(data)
