"""Random graphs in sessions: the bits of runs, whatever hooks see, change and keep.

`pytest tests/test_random_sessions.py` tries 30 graphs, always the same; `-m slow` tries 1000 new
ones.
"""

from __future__ import annotations

import numpy as np
import pytest
from conftest import trials
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_graphs import Recipe, assemble, recipes

import gradtool as gt
from gradtool.graph.gradients_at import inner_gradients
from gradtool.graph.training_info import TrainingInfo

EVERYTHING = {
    "deadline": None,
    "print_blob": True,
    "database": None,
    "phases": [Phase.generate],
    "suppress_health_check": list(HealthCheck),
}
ci = settings(max_examples=trials(30), derandomize=True, **EVERYTHING)
nightly = settings(max_examples=trials(1000), **EVERYTHING)


def check(recipe: Recipe, choose) -> None:
    training = gt.grad(assemble(recipe), loss="loss", wrt=list(recipe.leaves))
    expected = gt.run(training, recipe.inputs)
    carried = set(TrainingInfo.of(training.model).of_next)
    inner = list(inner_gradients(training.model))
    kept = choose(inner)
    changed = choose([*expected.gradients, *kept])
    seen: dict[str, int] = {}

    def change(name, array):
        seen[name] = seen.get(name, 0) + 1
        if name in changed:
            array.fill(7)

    with gt.Session(training, keep_gradients=kept) as session:
        session.on_gradient(change)
        for turn in (1, 2):
            found = session.step(recipe.inputs)

            assert found.loss == expected.loss
            assert set(found.gradients) == {*expected.gradients, *kept}
            assert set(seen.values()) <= {turn}
            for name in seen:
                if name in changed:
                    assert (found.gradients[name] == 7).all(), name
                elif name in expected.gradients:
                    np.testing.assert_array_equal(
                        found.gradients[name], expected.gradients[name], err_msg=name
                    )
            for name in expected.outputs.keys() - carried:
                np.testing.assert_array_equal(
                    found.outputs[name], expected.outputs[name], err_msg=name
                )


def some_of(data):
    def choose(names: list[str]) -> list[str]:
        return data.draw(st.lists(st.sampled_from(names), max_size=3, unique=True)) if names else []

    return choose


@pytest.mark.exhaustive
@ci
@given(recipes(), st.data())
def test_hooks_change_what_they_are_shown_and_nothing_else(recipe, data):
    check(recipe, some_of(data))


@pytest.mark.slow
@nightly
@given(recipes(), st.data())
def test_hooks_of_many_graphs(recipe, data):
    check(recipe, some_of(data))
