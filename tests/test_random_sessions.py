"""Random graphs in sessions: the bits of runs, whatever hooks see, and whatever is frozen and set.

`pytest tests/test_random_sessions.py` tries 30 graphs, always the same; `-m slow` tries 1000 new
ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import trials
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_graphs import Recipe, assemble, recipes

import gradtool as gt
from gradtool.errors import UsageError
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


def floats_of(recipe: Recipe) -> dict[str, np.ndarray]:
    held = recipe.weights | recipe.constants
    return {name: array for name, array in held.items() if array.dtype.kind == "f"}


def said(call, *given) -> str:
    """The refusal of a call; empty where there is none."""
    try:
        call(*given)
    except UsageError as error:
        return str(error)
    return ""


def same_as_fresh(recipe: Recipe, choose) -> int:
    """Compare a session that sets tensors with one of a file that has them; how many were set."""
    trained = choose(list(recipe.leaves)) or list(recipe.leaves)[:1]
    held = floats_of(recipe)
    new = {name: held[name] * 1.03125 for name in choose(list(held))}

    def graph(recipe: Recipe) -> gt.TrainingGraph:
        return gt.grad(assemble(recipe), loss="loss", wrt=trained)

    try:
        before = graph(recipe)
    except gt.GradtoolError:  # the loss depends on none of them
        return 0
    fresh = replace(
        recipe, weights={n: new.get(n, a) for n, a in recipe.weights.items()},
        constants={n: new.get(n, a) for n, a in recipe.constants.items()},
    )  # fmt: skip
    with gt.Session(before) as session, gt.Session(graph(fresh)) as other:
        session.step(recipe.inputs)
        there = {name: new[name] for name in new if name in before.model.graph.initializers}
        if refused := said(session.set, there):
            assert "was made for the value" in refused
            assert any(held[name].size == 1 or name in recipe.constants for name in there)
            return 0
        found, expected = session.step(recipe.inputs), other.step(recipe.inputs)

        np.testing.assert_array_equal(found.loss, expected.loss)
        for name, gradient in expected.gradients.items():
            np.testing.assert_array_equal(found.gradients[name], gradient, err_msg=name)
        for name, array in there.items():
            np.testing.assert_array_equal(session.values(name)[name], array)
    return len(there)


@pytest.mark.exhaustive
@ci
@given(recipes(), st.data())
def test_what_is_set_is_as_if_the_file_had_it(recipe, data):
    same_as_fresh(recipe, some_of(data))


@pytest.mark.slow
@nightly
@given(recipes(), st.data())
def test_what_is_set_in_many_graphs(recipe, data):
    same_as_fresh(recipe, some_of(data))
