"""`gt.mirror` and `gt.recompute`: what the commands do, as functions."""

from __future__ import annotations

import dataclasses

import pytest
from graphs import parse

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.workloads.rewritten import model_of

LAYERS = """g (float[N, 16] x, float[16, 16] w) => (y) {
    a = MatMul (x, w) b = Tanh (a) c = Sin (b) d = MatMul (c, w) e = Tanh (d) f = Sin (e)
    y = ReduceMean <keepdims = 0> (f)
}"""


@pytest.fixture
def training():
    return gt.grad(parse(LAYERS, "w"), loss="y")


def test_a_mirrored_graph_computes_the_same_bits_in_less(training):
    found = gt.mirror(training, dims={"N": 256}, kernels="numpy")
    feeds = gt.api.read_inputs(gt.api.bound(training.model, {"N": 256}), "random")
    before, after = gt.run(training, feeds, kernels="numpy"), gt.run(found, feeds)

    assert found.plan.peak < found.kept.peak
    assert after.plan.peak == found.plan.peak
    assert before.gradients["w"].tobytes() == after.gradients["w"].tobytes()


def test_the_graph_given_is_left_as_it_is(training):
    before = len(training.model.graph)
    found = gt.recompute(training, gt.Checkpoints(["c"]), dims={"N": 256})

    assert len(training.model.graph) == before < len(found.model.graph)


@pytest.mark.parametrize("strategy", ["keep", "reorder", "mirror", "sqrt", "segments"])
def test_every_strategy_has_its_name(training, strategy):
    found = gt.recompute(training, strategy, dims={"N": 64})

    assert found.plan.name == strategy
    assert found.plan.program.dims == {"N": 64}
    assert found.plan.peak <= found.kept.peak
    assert (found.extra_flops == 0) == (found.plan.program == found.kept.program or not any(
        s.stage == "recompute" for s in found.plan.program.steps))  # fmt: skip


@pytest.mark.exhaustive
def test_the_result_may_be_rewritten_again_saved_and_reported(training, tmp_path):
    first = gt.mirror(training, dims={"N": 256})
    second = gt.recompute(first, "keep", dims={"N": 256})
    gt.save(second, tmp_path / "r.onnx")
    report = gt.report([first.plan, second.plan], ["first", "second"])

    assert second.plan.peak == first.plan.peak
    assert gt.plan(gt.load(tmp_path / "r.onnx", dims={"N": 256})).peak == first.plan.peak
    assert [row.model for row in report] == ["first", "second"]


def test_results_are_frozen(training):
    with pytest.raises(dataclasses.FrozenInstanceError):
        gt.mirror(training, dims={"N": 4}).model = None


def test_a_model_is_its_own_model(training):
    assert model_of(training) is model_of(training.model) is training.model


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: gt.recompute(g, None), "goal is None, and has to be a text"),
        (lambda g: gt.recompute(g, gt.Checkpoints(["c"]), strategy="sqrt"), "say what to compute"),
        (
            lambda g: gt.recompute(g, gt.Checkpoints(["c"]), strategy="sqrt"),
            "cannot be combined with",
        ),
        (lambda g: gt.recompute(g, "sqrt", strategy="optimal"), "cannot be combined"),
        (lambda g: gt.recompute(g, "sqr"), "no strategy 'sqr'; did you mean 'sqrt'?"),
        (lambda g: gt.recompute(g, gt.Checkpoints(["q"]), dims={"N": 4}), "checkpoint 'q'"),
        (lambda g: gt.mirror(g, policy="dot", dims={"N": 4}), "did you mean 'dots'?"),
        (lambda g: gt.mirror(g, keep=["q"], dims={"N": 4}), "--keep q: no forward value"),
        (gt.mirror, "N"),
    ],
)
def test_what_cannot_be_is_refused(training, call, message):
    with pytest.raises(UsageError) as caught:
        call(training)

    assert message in str(caught.value)
