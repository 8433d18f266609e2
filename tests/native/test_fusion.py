"""Elementwise groups give the bits of their steps apart, and take no more memory."""

from __future__ import annotations

import pytest
from conftest import build, swept
from elementwise_networks import HEADER, elementwise_network
from image_networks import image_network
from native_calls import needs_library

import gradtool as gt
from gradtool.exec.run import execute
from gradtool.ops.elementwise.native import GROUP
from gradtool.program import native
from gradtool.program.flatten import flatten
from gradtool.workloads.run_options import RunOptions

STRATEGIES = ("reorder", "mirror", "sqrt", "optimal")


@pytest.fixture(params=swept(60, 5))
def graph(request):
    seed = request.param
    if seed % 3:
        return gt.grad(gt.load(elementwise_network(seed)), input_grad=["x"])
    optimizer = ("adam", "momentum", "adagrad")[seed % 9 // 3]
    return gt.grad(gt.load(image_network(seed)), train_mode=bool(seed % 2), optimizer=optimizer)


def results(graph, arrays):
    found = execute(
        graph.model, dict(arrays), RunOptions(kernels="native", check_arena=True, measure=True)
    )
    return found.plan, {**found.gradients, **found.outputs}


@needs_library
def test_groups_give_the_bits_of_their_steps(graph, monkeypatch):
    arrays = gt.api.fed(graph.model, "random", 0)[1]
    together, ours = results(graph, arrays)
    monkeypatch.setattr(native, "fused", lambda program, _: program)
    alone, theirs = results(graph, arrays)

    for name, array in theirs.items():
        assert ours[name].tobytes() == array.tobytes(), name
    workspace = max((sum(w.bytes for w in s.workspace) for s in together.program.steps), default=0)
    assert together.peak <= alone.peak + workspace


def test_a_chain_is_one_step_named_as_its_last():
    model = build(
        "net (float[4, 8] x) => (float loss) { a = Tanh (x) b = Mul (a, x) c = Add (b, x) "
        "loss = ReduceSum <keepdims = 0> (c) }",
        HEADER,
    )
    steps = flatten(gt.load(model), kernels="native").steps

    assert [step.op for step in steps] == [GROUP, "ReduceSum"]
    assert [name for name, *_ in steps[0].attributes["operations"]] == ["tanh", "mul", "add"]


def test_what_two_steps_read_is_written_and_two_values_do_not_wait_for_one():
    model = build(
        "net (float[4, 8] x) => (float loss) { a = Tanh (x) b = Mul (a, x) c = Sin (a) "
        "d = Add (b, c) loss = ReduceSum <keepdims = 0> (d) }",
        HEADER,
    )
    steps = flatten(gt.load(model), kernels="native").steps

    assert [step.op for step in steps] == ["Tanh", "Mul", "Sin", "Add", "ReduceSum"]


@needs_library
def test_a_plan_computes_the_same_bits_after_it_was_saved_and_loaded(graph, request, tmp_path):
    strategy = STRATEGIES[request.node.callspec.params["graph"] % len(STRATEGIES)]
    arrays = gt.api.fed(graph.model, "random", 0)[1]
    expected = results(graph, arrays)[1]
    planned = gt.recompute(graph, strategy)
    gt.save(planned, tmp_path / "plan.onnx")
    for again in (planned.model, gt.load(tmp_path / "plan.onnx")):
        found = execute(again, dict(arrays), RunOptions(kernels="native", check_arena=True))
        for name, array in {**found.gradients, **found.outputs}.items():
            assert array.tobytes() == expected[name].tobytes(), name
