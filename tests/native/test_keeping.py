"""What LSTM keeps for its gradient on native kernels: gates pass as a value of the program."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import swept
from native_calls import needs_library
from recurrent_networks import recurrent_network

import gradtool as gt
from gradtool.exec.run import execute, planned
from gradtool.program.flatten import flatten
from gradtool.workloads.plans import workload, write
from gradtool.workloads.run_options import RunOptions
from gradtool.workloads.strategies import STRATEGIES

NETWORKS, PLANNED = 20, 60


def training(seed):
    return gt.grad(gt.load(recurrent_network(seed)), input_grad=["x"])


def kept(program):
    return [v.name for v in program.values if v.name.endswith(".gates")]


def results(model, arrays, kernels):
    done = execute(model, dict(arrays), RunOptions(kernels=kernels, measure=True, check_arena=True))
    return done, {n: np.asarray(a) for n, a in (done.gradients | done.outputs).items()}


@pytest.mark.parametrize("seed", range(NETWORKS))
def test_every_lstm_with_a_gradient_keeps_its_gates_and_no_other_does(seed):
    model = training(seed).model
    program = flatten(model, kernels="native")
    layers = [step for step in program.steps if step.op == "LSTM"]
    assert len(kept(program)) == len(layers)
    assert all(len(step.outputs) == 4 for step in layers)
    assert all(len(s.inputs) == 13 for s in program.steps if s.op == "ai.gradtool::LSTMGrad")

    again = {step.name: step.flops for step in flatten(model).steps}
    for step in program.steps:
        if step.op == "ai.gradtool::LSTMGrad":
            assert step.flops < again[step.name]

    assert not kept(flatten(model))
    assert not kept(flatten(gt.load(recurrent_network(seed)), kernels="native"))


@needs_library
@pytest.mark.parametrize("seed", swept(PLANNED, 3))
def test_bits_are_those_of_no_plan_and_bytes_those_planned(seed):
    """Also where the layer and its gates are computed again; values are about those of numpy."""
    graph = training(seed)
    arrays = gt.api.fed(graph.model, "random", seed)[1]
    _, exact = results(graph.model, arrays, "numpy")
    _, expected = results(graph.model, arrays, "native")
    for name, array in exact.items():
        scale = np.abs(array).max(initial=1e-3)
        np.testing.assert_allclose(expected[name] / scale, array / scale, atol=2e-5, err_msg=name)
    work = workload(graph.model, {}, "native")
    for name, strategy in STRATEGIES.items():
        found = strategy(work)
        assert found.proof is None or found.proof.least <= found.plan.peak, name
        gradients = [s for s in found.plan.program.steps if s.op == "ai.gradtool::LSTMGrad"]
        assert all(len(step.inputs) == 13 for step in gradients), name
        model = write(work, found)
        assert planned(model, {}, "native").peak == found.plan.peak, name
        done, ours = results(model, arrays, "native")
        assert done.measurement.planned == found.plan.peak >= done.measurement.high_water
        assert {n: a.tobytes() for n, a in ours.items()} == {
            n: a.tobytes() for n, a in expected.items()
        }, name
