"""What commands say of losses and parameters."""

import numpy as np
import pytest

FLAT = """flat (float[N, 3] x) => (float[N, 2] y) { h = MatMul (x, w) y = Mul (h, zero) }"""
STEPS = (
    """net (float[4, 3] x) => (float[4, 3] y) { f = Floor (steps) h = Mul (x, w) y = Add (h, f) }"""
)


@pytest.mark.exhaustive
def test_a_run_says_when_all_gradients_are_zero(run, model):
    weights = {"w": np.ones((3, 2), np.float32), "zero": np.zeros((1, 2), np.float32)}
    path = model(FLAT, "flat.onnx", **weights)
    outcome = run(
        "run", path, "--loss", "mean:y", "--wrt", "w", "--batch", "2", "--verify", "finite-diff",
        "--verify", "ort",
    )  # fmt: skip

    assert outcome.code == 0
    assert "warning: all gradients are zero, so nothing trains" in outcome.err
    said = [line for line in outcome.err.splitlines() if line.startswith("verified: ")]
    assert len(said) == 2
    assert all(line.endswith("; all of them are zero") for line in said)


def test_a_run_with_gradients_says_nothing_of_the_kind(run, tiny_model):
    outcome = run("run", tiny_model, "--dim", "batch=2", "--verify", "ort")

    assert "zero" not in outcome.err


def test_gradients_that_are_zero_by_definition_are_named(run, model):
    named = "parameters: 2 of 2, 1 zero by definition (steps)"
    path = model(STEPS, "steps.onnx", w=np.ones(3, np.float32), steps=np.ones(3, np.float32))

    assert named in run("grad", path, "--loss", "mse:y", "--wrt", "[!x]*").out
    assert named in run("run", path, "--loss", "mse:y", "--wrt", "[!x]*").err


def test_a_whole_step_is_not_updated_again(run, tiny_model):
    run("grad", tiny_model, "--optimizer", "adam", "-o", "step.onnx")
    run("grad", tiny_model, "-o", "half.onnx")
    whole = "the model is a whole step of adam, which updates its parameters already"

    assert run("grad", "step.onnx", "--optimizer", "sgd").err == (
        f"gradtool: --optimizer sgd: {whole}; give the forward model\n"
    )
    assert run("grad", "step.onnx").err == f"gradtool: {whole}; give the forward model\n"
    again = run("run", "step.onnx", "--optimizer", "sgd", "--dim", "batch=2")
    assert (again.code, again.err) == (
        2, f"gradtool: --optimizer sgd: {whole}; give the forward model\n",
    )  # fmt: skip
    assert run("grad", "half.onnx", "--optimizer", "sgd").err == (
        "gradtool: --optimizer sgd: the model holds its gradients already; give the forward model\n"
    )
    assert "name it: --loss sum:w_grad" in run("grad", "half.onnx").err


def test_one_class_asked_for_is_refused_with_advice(run, model):
    path = model(
        "one (float[N, 3] x) => (float[N, 1] y) { y = MatMul (x, w) }", "one.onnx",
        w=np.ones((3, 1), np.float32),
    )  # fmt: skip
    outcome = run("grad", path, "--loss", "ce:y")

    assert outcome.code == 2
    assert "--loss bce-logits:y" in outcome.err
    assert "mean squared error (auto, output 'y', of one class" in run("grad", path).out
