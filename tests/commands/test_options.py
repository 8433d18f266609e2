"""`--optimizer` of the commands that differentiate."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from conftest import tiny_weights


def test_grad_writes_a_whole_step(run, tiny_model, tmp_path):
    outcome = run("grad", tiny_model, "--optimizer", "momentum")
    written = onnx.load(tmp_path / "tiny.grad.onnx")

    assert outcome.code == 0
    assert "parameters: 2 of 2" in outcome.out
    assert (
        "optimizer: momentum, inputs lr 0.001, momentum 0.9; nesterov false   updates: 2 parameters"
        in (outcome.out)
    )
    assert {o.name for o in written.graph.output} == {
        "loss", "w_next", "w_momentum_next", "b_next", "b_momentum_next",
    }  # fmt: skip
    assert {i.name for i in written.graph.input} >= {"x", "lr", "w", "w_momentum"}


def test_json_names_the_updates(run, tiny_model):
    document = json.loads(run("grad", tiny_model, "--optimizer", "sgd", "--format", "json").out)

    assert document["updates"] == {"w": "w_next", "b": "b_next"}
    assert document["gradients"] == {}
    assert document["nodes"]["update"] == 2


@pytest.mark.parametrize("given", [{}, {"lr": np.float32(0.5)}])
def test_run_takes_the_learning_rate_from_the_inputs_or_its_default(
    run, tiny_model, tmp_path, given
):
    x = np.ones((2, 8), np.float32)
    np.savez(tmp_path / "in.npz", x=x, **given)
    run("grad", tiny_model)
    np.savez(tmp_path / "x.npz", x=x)
    run("run", "tiny.grad.onnx", "--inputs", "x.npz", "--save-grads", "g.npz")
    arguments = ("--inputs", "in.npz", "--optimizer", "sgd", "--save-outputs", "o.npz")
    outcome = run("run", tiny_model, *arguments)
    gradient = np.load(tmp_path / "g.npz")["w"]
    moved = tiny_weights()["w"] - given.get("lr", np.float32(1e-3)) * gradient

    assert outcome.code == 0
    assert "w_next" in outcome.out
    assert "3 outputs" in outcome.out
    np.testing.assert_array_equal(np.load(tmp_path / "o.npz")["w_next"], moved)


def test_run_says_what_differences_need(run, tiny_model):
    outcome = run(
        "run", tiny_model, "--dim", "batch=2", "--optimizer", "sgd", "--verify", "finite-diff"
    )

    assert outcome.code == 2
    assert "--verify finite-diff needs gradients as outputs: leave --optimizer out" in outcome.err


@pytest.mark.exhaustive
def test_run_checks_the_next_values_in_onnxruntime_and_in_every_plan(run, tiny_model):
    pytest.importorskip("onnxruntime")
    flags = (
        "--optimizer",
        "adam",
        "--verify",
        "ort",
        "--verify",
        "plans",
        "--measure",
        "--repeat",
        "3",
    )
    outcome = run("run", tiny_model, "--dim", "batch=2", *flags)

    assert outcome.code == 0
    assert "verified: 6 outputs agree with stock onnxruntime" in outcome.err
    assert "verified: 8 outputs: the same bits" in outcome.err


def test_report_counts_the_state(run, tiny_model):
    arguments = ("report", tiny_model, "--dim", "batch=2")
    plain, step = run(*arguments), run(*arguments, "--optimizer", "adam")

    assert "not counted: optimiser state, CUDA context" in plain.out
    assert "not counted: CUDA context" in step.out
    assert "state" in step.out
    assert "state" not in plain.out.replace("optimiser state", "")


def test_report_counts_it_in_a_written_step_too(run, tiny_model):
    run("grad", tiny_model, "--optimizer", "adam")
    outcome = run("report", "tiny.grad.onnx", "--dim", "batch=2", "--format", "json")
    (model,) = json.loads(outcome.out)["models"]

    # exp_avg and exp_avg_sq of w (128 bytes) and of b (16, aligned 64), and the count of steps.
    assert model["regions"]["state"] == 2 * 128 + 2 * 64 + 64


def test_mirror_writes_a_step_that_recomputes(run, tiny_model, tmp_path):
    outcome = run("mirror", tiny_model, "--dim", "batch=64", "--optimizer", "sgd", "-o", "m.onnx")
    written = onnx.load(tmp_path / "m.onnx")
    stages = [
        p.value for n in written.graph.node for p in n.metadata_props if p.key == "gradtool.stage"
    ]

    assert outcome.code == 0
    assert "update" in stages


def test_a_model_with_gradients_is_refused(run, tiny_model):
    run("grad", tiny_model)
    outcome = run("report", "tiny.grad.onnx", "--dim", "batch=2", "--optimizer", "adam")

    assert outcome.code == 2
    assert "the model holds its gradients already; give the forward model" in outcome.err


def test_an_optimizer_that_does_not_exist(run, tiny_model):
    outcome = run("grad", tiny_model, "--optimizer", "lyon")

    assert outcome.code == 2
    assert "'lyon'" in outcome.err
