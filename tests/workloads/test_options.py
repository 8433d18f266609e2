"""What `recompute` is asked for: one thing, with what belongs to it."""

from fractions import Fraction

import pytest
from layered import layers

from gradtool.errors import UsageError
from gradtool.workloads.budgets.search import CUTS
from gradtool.workloads.recompute_options import RecomputeOptions


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (RecomputeOptions("sqrt"), "sqrt"),
        (RecomputeOptions("min-cut"), "min-cut"),
        (RecomputeOptions("min-cut", budget="80%"), "min-cut"),
        (RecomputeOptions("min-cut", max_slowdown="20%"), "min-cut"),
    ],
)
def test_each_question_has_its_plan(asked, name):
    work = layers()
    found = asked.plans()(work)

    assert found.name == name
    assert found.plan.peak <= work.kept.peak


@pytest.mark.parametrize("given", ["20%", 0.2, Fraction(1, 5)])
def test_a_slowdown_is_a_share_or_a_percentage(given):
    found = RecomputeOptions("min-cut", max_slowdown=given).plans()(layers())

    assert found.proof.allowed in (
        int(Fraction(1, 5) * found.proof.total), int(Fraction(0.2) * found.proof.total),
    )  # fmt: skip


def test_a_search_has_the_seed_and_time_that_were_given():
    found = RecomputeOptions("min-cut", budget="min", seed=3, time_limit=7.0).search()(layers())

    assert (found.effort, found.seed, found.seconds) == (CUTS, 3, 7.0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (RecomputeOptions(), "say what to compute again: "),
        (
            RecomputeOptions("sqrt", budget="60%"),
            "the strategy sqrt cannot be combined with a budget",
        ),
        (RecomputeOptions("sqrt", ["s1"]), "the strategy sqrt cannot be combined with checkpoints"),
        (
            RecomputeOptions("optimal", ["s1"]),
            "the strategy optimal cannot be combined with checkpoints",
        ),
        (
            RecomputeOptions(budget="60%", max_slowdown="1%"),
            "a budget cannot be combined with a slowdown",
        ),
        (RecomputeOptions("optimum"), "no strategy 'optimum'; did you mean 'optimal'?"),
        (RecomputeOptions(budget="8G"), "is ambiguous"),
        (RecomputeOptions(budget="min", optimizer="lyon"), "no optimizer 'lyon'"),
        (RecomputeOptions(max_slowdown="fast"), "is not a percentage"),
        (RecomputeOptions(max_slowdown=-1.0), "max_slowdown -1.0 is no share of a step"),
        (RecomputeOptions(max_slowdown=float("nan")), "max_slowdown nan is no share of a step"),
        (RecomputeOptions(plan="none.json"), "none.json: cannot be read"),
        (RecomputeOptions(budget="min", cost="none.json"), "none.json: cannot be read"),
        (
            RecomputeOptions(budget="min", cost="tme"),
            "no cost 'tme'; did you mean 'time'?; it is flops, time or a FILE of times",
        ),
        (
            RecomputeOptions(budget="min", cost="x" * 9999),
            "xxx'; it is flops, time or a FILE of times",
        ),
        (RecomputeOptions(budget="min", cost="\0"), "no cost "),
    ],
)
def test_what_cannot_be_is_refused_before_any_model_is_read(asked, message):
    with pytest.raises(UsageError) as caught:
        asked.plans()

    assert message in str(caught.value)
