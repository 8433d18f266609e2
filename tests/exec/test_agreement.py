"""The check of every plan: it passes where plans are true, and fails where one lies."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from graphs import parse

import gradtool as gt
from gradtool.errors import GradtoolError
from gradtool.exec import agreement
from gradtool.exec.agreement import SMALL_CHANGE, Agreement
from gradtool.workloads import strategies
from gradtool.workloads.planned import Arena
from gradtool.workloads.plans import workload

LAYERS = """g (float[64, 16] x, float[16, 16] w) => (y) {
    a = MatMul (x, w) b = Tanh (a) c = Sin (b) d = MatMul (c, w) e = Tanh (d) f = Sin (e)
    y = ReduceMean <keepdims = 0> (f)
}"""


@pytest.fixture(scope="module")
def run():
    """A training graph, its inputs, and what it computes."""
    model = gt.grad(parse(LAYERS, "w"), loss="y").model
    arrays = gt.api.read_inputs(model, "random")
    return model, arrays, gt.run(model, arrays, kernels="numpy")


def test_every_plan_agrees(run):
    found = agreement.every_plan(*run)

    assert [each.plan for each in found] == list(strategies.STRATEGIES)
    assert all(each.arena == each.planned for each in found)


def test_chosen_plans_only(run):
    assert [each.plan for each in agreement.every_plan(*run, names=["sqrt"])] == ["sqrt"]


def test_the_line_for_people_names_the_plans(run):
    others = ", ".join(name for name in strategies.STRATEGIES if name != strategies.KEEP)

    assert agreement.plans(*run) == (
        f"1 gradient: the same bits in {others} as in keep, and each plan takes the memory planned"
    )


@pytest.mark.parametrize("by", [-64, 64])
def test_a_plan_that_lies_about_its_peak_is_found_out(run, by):
    model, arrays, result = run
    work = workload(model)
    found = strategies.mirror(work)
    plan = dataclasses.replace(found.plan, peak=found.peak + by)
    lie = dataclasses.replace(found, arena=Arena.of(plan))

    with pytest.raises(GradtoolError, match=r"plan mirror: planned \d+ bytes, the written model"):
        agreement.check(work, lie, arrays, result)


def test_other_bits_are_found_out(run):
    """A gradient that differs in its last bit."""
    model, arrays, result = run
    work = workload(model)
    w = np.nextafter(result.gradients["w"], np.float32(np.inf))
    other = dataclasses.replace(result, gradients={"w": w})

    with pytest.raises(GradtoolError, match="plan sqrt: 'w' has other bits than with keep"):
        agreement.check(work, strategies.sqrt(work), arrays, other)


def test_minus_zero_is_not_zero(run):
    model, arrays, result = run
    work = workload(model)
    outputs = {name: -np.asarray(array) for name, array in result.outputs.items()}
    other = dataclasses.replace(result, outputs=outputs)

    with pytest.raises(GradtoolError, match="has other bits"):
        agreement.check(work, strategies.keep(work), arrays, other)


TRUE = Agreement(
    plan="p",
    planned=1 << 20,
    arena=1 << 20,
    high_water=(1 << 20) - 4,
    outside=0,
    least=(1 << 20) - 63,
)


def test_a_true_plan_has_no_problem():
    assert not TRUE.problem(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arena": 1 << 21}, "the written model takes 2097152"),
        ({"high_water": (1 << 20) - 64}, "the last byte used is 1048512"),
        ({"high_water": (1 << 20) + 1}, "the last byte used is 1048577"),
        ({"outside": SMALL_CHANGE + (1 << 20) // 100 + 1}, "were allocated beside the arena"),
    ],
)
def test_each_way_of_lying_is_named(change, message):
    assert message in dataclasses.replace(TRUE, **change).problem(0)


def test_what_simple_kernels_take_is_allowed():
    allowed = SMALL_CHANGE + (1 << 20) // 100
    more = dataclasses.replace(TRUE, outside=allowed + 500)

    assert more.problem(0)
    assert not more.problem(500)
