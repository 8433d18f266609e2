"""From a training graph to plans, and from a plan to the model that carries it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from graphs import parse
from hypothesis import given
from hypothesis import strategies as st

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.graph.training_info import TrainingInfo
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.schedule import Schedule
from gradtool.workloads import strategies
from gradtool.workloads.plans import (
    extra_flops,
    largest_batch,
    planned,
    total_flops,
    workload,
    write,
)

LAYERS = """g (float[N, 16] x, float[16, 16] w) => (y) {
    a = MatMul (x, w) b = Tanh (a) c = Sin (b) d = MatMul (c, w) e = Tanh (d) f = Sin (e)
    y = ReduceMean <keepdims = 0> (f)
}"""
SAMPLES = Path(__file__).parents[2] / "samples"


def training(**dims):
    model = parse(LAYERS, "w")
    return gt.grad(gt.api.bound(model, dims) if dims else model, loss="y").model


def test_a_workload_leaves_the_model_as_it_is():
    model = training()
    before = [(n.name, [v.name for v in n.outputs]) for n in model.graph]
    work = workload(model, {"N": 4})

    assert work.model is not model
    assert [(n.name, [v.name for v in n.outputs]) for n in model.graph] == before
    assert len({n.name for n in work.model.graph}) == len(work.model.graph)


def test_open_sizes_have_to_be_given():
    with pytest.raises(UsageError, match="N"):
        workload(training())


def test_other_sizes_are_the_same_as_a_workload_of_these():
    model = training()
    resized = workload(model, {"N": 4}).resized({"N": 32})

    assert no_recompute(resized).peak == workload(model, {"N": 32}).kept.peak
    assert resized is not workload(model, {"N": 4}).program


def test_every_node_is_a_step_of_the_nodes():
    model = gt.grad(gt.load(SAMPLES / "transformer.onnx", dims={"batch": 2})).model
    work = workload(model)

    assert len(work.nodes.steps) > len(work.program.steps)
    assert {s.name for s in work.program.steps} <= {s.name for s in work.nodes.steps}


@pytest.mark.parametrize("name", ["keep", "mirror", "sqrt", "segments"])
def test_a_written_plan_is_planned_to_the_same_peak(name, tmp_path):
    """flatten(load(save(write(plan)))) takes what the plan takes."""
    work = workload(training(N=128))
    found = strategies.STRATEGIES[name](work)
    gt.save(write(work, found), tmp_path / "w.onnx")

    assert gt.plan(gt.load(tmp_path / "w.onnx"), kernels="numpy").peak == found.plan.peak


def test_a_written_plan_says_what_it_is():
    work = workload(training(), {"N": 128})
    found = strategies.mirror(work)
    model = write(work, found)

    assert TrainingInfo.of(model).plan == {
        "name": "mirror",
        "peak_bytes": found.plan.peak,
        "keep_bytes": work.kept.peak,
        "extra_flops": extra_flops(found.plan, work.kept),
        "dims": {"N": 128},
        "kernels": "numpy",
    }


def test_sizes_given_on_loading_are_those_of_the_plan_too():
    loaded = gt.load(SAMPLES / "cnn.onnx", dims={"batch": 2})
    work = workload(gt.grad(loaded).model)
    model = write(work, strategies.keep(work))

    assert TrainingInfo.of(model).plan["dims"] == {"batch": 2}


def test_the_model_of_a_plan_leaves_sizes_open():
    work = workload(training(), {"N": 128})
    model = write(work, strategies.mirror(work))

    assert gt.io.symbols(model) == ["N"] or list(gt.io.symbols(model)) == ["N"]


def test_extra_flops_are_those_of_what_runs_again():
    work = workload(training(N=128))
    found = strategies.mirror(work)
    again = sum(work.program.steps[s].flops for s in found.schedule.recomputed)

    assert extra_flops(work.kept, work.kept) == 0
    assert extra_flops(found.plan, work.kept) == again > 0
    assert total_flops(found.plan.program) == total_flops(work.program) + again


def test_extra_flops_are_unknown_if_an_operator_of_unknown_cost_runs_again():
    work = workload(training(N=128))
    again = strategies.mirror(work).schedule.recomputed[0]
    steps = tuple(
        dataclasses.replace(s, flops=None) if i == again else s
        for i, s in enumerate(work.program.steps)
    )
    blind = dataclasses.replace(work, program=dataclasses.replace(work.program, steps=steps))
    twice = planned(blind, "twice", strategies.mirror(work).schedule)
    plain = planned(blind, "plain", Schedule.of(range(len(steps))))

    assert extra_flops(twice.plan, blind.kept) is None
    assert extra_flops(plain.plan, blind.kept) == 0


@given(
    st.integers(0, 5000),
    st.integers(1, 40),
    st.lists(st.integers(1, 90), min_size=1),
    st.booleans(),
)
def test_the_largest_batch_is_the_last_that_fits(limit, start, steps, is_known):
    """Whatever bytes a batch takes, as long as each takes more; what is lacking may be unknown."""
    tried = []

    def spare(size):
        tried.append(size)
        whole, rest = divmod(limit - size, len(steps))
        left = whole * sum(steps) + sum(steps[:rest])
        return left if left >= 0 or is_known else None

    found = largest_batch(spare, start=start)

    assert found == (limit if limit >= start else 0)
    assert len(tried) <= 60


@given(st.integers(1, 10**6), st.integers(1, 10**9), st.integers(1, 10**9))
def test_few_batches_are_tried_where_each_takes_as_much(limit, each, rest):
    tried = []

    def spare(size):
        tried.append(size)
        return limit * each + rest % each - size * each

    assert largest_batch(spare) == limit
    assert len(tried) <= 6


def test_the_search_for_a_batch_ends_where_everything_fits():
    assert largest_batch(lambda _: 1, most=1000) <= 1000
