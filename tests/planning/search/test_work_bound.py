from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import trials
from exhaustive import least_extra
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import program
from tight_cases import case

from gradtool.planning.search.certificate import certificates
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.work_bound import chain, instants, least_budget, rounded

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def check(data):
    work, budget = case(data)
    optimum = least_extra(work, budget)

    for certificate in certificates(work, budget):
        if certificate is None:
            assert optimum is None
        else:
            assert optimum is None or certificate.bound <= optimum


@pytest.mark.exhaustive
@settings(max_examples=trials(100), **EXAMPLES)
@given(st.data())
def test_no_bound_is_above_the_optimum_of_all_schedules(data):
    check(data)


@pytest.mark.slow
@settings(max_examples=1000, **EXAMPLES)
@given(st.data())
def test_no_bound_is_above_the_optimum_of_many_programs(data):
    check(data)


@settings(max_examples=trials(30), **EXAMPLES)
@given(st.data())
def test_below_the_least_budget_nothing_fits(data):
    work, _ = case(data)

    assert least_extra(work, least_budget(work) - 1) is None


def test_the_least_budget_is_the_largest_step_by_itself():
    """b reads a and writes 64 bytes each, with 256 of workspace; x is always alive."""
    made = program("a = Tanh x", "b = Exp a", "c = Exp b", outputs="c", work={"b": 256})

    assert least_budget(CostModel(made, [1, 1, 1])) == 64 + 64 + 64 + 256


def test_of_several_outputs_the_largest_counts_in_the_least_budget():
    """b writes 64 and 256 bytes for two readers: it may run for one alone, but for each of them."""
    made = program("a = Tanh x", "b = Exp a", "c = Exp b", "d = Exp e", outputs="c d",
                   inputs="x e", sizes={"e": 64}, work={"b": 256})  # fmt: skip
    e = next(i for i, datum in enumerate(made.values) if datum.name == "e")
    values = [replace(v, kind="activation") if i == e else v for i, v in enumerate(made.values)]
    steps = [replace(s, outputs=(*s.outputs, e)) if s.name == "b" else s for s in made.steps]
    inputs = tuple(v for v in made.inputs if v != e)
    both = replace(made, values=tuple(values), inputs=inputs, steps=tuple(steps))

    assert least_budget(CostModel(both, [1] * 4)) == 64 + 64 + 256 + 256


def test_a_chain_is_the_longest_from_source_to_sink():
    made = program("a = Tanh x", "b = Exp a", "c = Exp x", "d = Mul b c", "e = Exp d", outputs="e")

    assert chain(CostModel(made, [1] * 5)) == [0, 1, 3, 4]


def test_only_ancestors_are_early_and_only_descendants_late():
    made = program("a = Tanh x", "b = Exp x", "c = Exp a", "d = Mul b c", outputs="d")
    (instant,) = instants(CostModel(made, [1] * 4), [2])

    assert (set(instant.early), set(instant.late)) == ({0}, {3})


@pytest.mark.parametrize(("bound", "expected"), [(0, 0), (0.5, 2), (4, 4), (4.1, 6)])
def test_bounds_are_rounded_up_to_what_whole_steps_add_up_to(bound, expected):
    """Costs 4 and 6 add up to multiples of 2; a step that never runs again does not count."""
    made = program("a = Tanh x", "b = Exp a", "c = Exp b", outputs="c")
    work = CostModel(made, [4, 6, None])

    assert rounded(work, bound) == expected
