"""`run --kernels` and `--explain-kernels`."""

import json
from pathlib import Path

import numpy as np
import pytest
from native_calls import needs_library

from gradtool.exec.executor import Executor
from gradtool.native import library


@pytest.fixture
def gradients(run, tiny_model, tiny_inputs, tmp_path):
    """The gradients of a run with further options, and what it said."""

    def found(*options):
        path = tmp_path / "g.npz"
        done = run("run", tiny_model, "--inputs", tiny_inputs, "--save-grads", path, "--force",
                   *options)  # fmt: skip
        assert done.code == 0, done.err
        with np.load(path) as loaded:
            return dict(loaded), done

    return found


@needs_library
def test_native_kernels_give_the_gradients_of_numpy(gradients):
    ours, _ = gradients("--kernels", "native", "--measure", "--check-arena")
    theirs, _ = gradients("--kernels", "numpy")

    assert sorted(ours) == sorted(theirs) == ["b", "w"]
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, rtol=1e-5)


def test_without_a_library_numpy_runs_and_it_is_said(gradients, monkeypatch):
    monkeypatch.setattr(library, "status", lambda: (None, "built without native kernels"))
    ours, done = gradients("--kernels", "native")
    theirs, _ = gradients()

    assert "kernels: numpy (built without native kernels)" in done.err
    assert {n: a.tobytes() for n, a in ours.items()} == {n: a.tobytes() for n, a in theirs.items()}


def explained(run, model, *options):
    done = run("run", model, "--batch", "2", "--explain-kernels", "--format", "json", *options)
    assert done.code == 0
    return json.loads(done.out)["steps"]


@needs_library
def test_every_step_says_what_runs_it_and_why(run, tiny_model):
    steps = explained(run, tiny_model, "--kernels", "native")
    by = {step["operator"]: (step["provider"], step["why"]) for step in steps}

    assert by["MatMul"] == by["ReduceSum"] == ("native", "it fits")
    assert all(step["why"] for step in steps)


def test_what_numpy_is_asked_for_says_what_would_fit(run, tiny_model):
    steps = explained(run, tiny_model)

    assert {step["provider"] for step in steps} == {"numpy"}
    (product, *_) = (step for step in steps if step["operator"] == "MatMul")
    assert product["why"] == "it fits, but numpy is asked for"


@needs_library
def test_convolutions_are_sums_of_products_if_asked_for(run, tmp_path):
    sample = Path(__file__).parents[2] / "samples" / "cnn.onnx"
    methods = {
        how: {step["method"] for step in explained(run, sample, "--kernels", "native", *how)}
        for how in ((), ("--exact-conv",))
    }
    found = {}
    for how in (["numpy"], ["native"], ["native", "--exact-conv"]):
        done = run("run", sample, "--batch", "2", "--kernels", *how, "--measure", "--force",
                   "--save-grads", tmp_path / "g.npz", "--verify", "plans")  # fmt: skip
        assert done.code == 0, done.err
        with np.load(tmp_path / "g.npz") as loaded:
            found[" ".join(how)] = dict(loaded)

    assert "winograd" in methods[()]
    assert "winograd" not in methods["--exact-conv",]
    for name, array in found["numpy"].items():
        near = 1e-5 * np.abs(array).max()
        np.testing.assert_allclose(found["native --exact-conv"][name], array, atol=near)
        assert found["native"][name].tobytes() != found["native --exact-conv"][name].tobytes()


def test_what_is_explained_does_not_run(run, tiny_model):
    done = run("run", tiny_model, "--batch", "2", "--explain-kernels")

    assert "steps on native kernels" in done.out + done.err
    assert "loss " not in done.out


def test_native_kernels_on_cuda_are_refused(run, tiny_model):
    done = run("run", tiny_model, "--batch", "2", "--kernels", "native", "--device", "cuda:1")

    assert done.code == 2
    assert "--kernels native and --device cuda do not go together" in done.err


@needs_library
@pytest.mark.parametrize("flag", ["--profile", "--trace"])
def test_what_is_timed_are_the_kernels_that_run(run, tiny_model, monkeypatch, flag):
    bound, bind = [], Executor._bind_native

    def noted(executor, index, step):
        bound.append(step.op)
        return bind(executor, index, step)

    monkeypatch.setattr(Executor, "_bind_native", noted)
    done = run("run", tiny_model, "--batch", "2", "--kernels", "native", flag, "f.json")

    assert done.code == 0
    assert bound.count("MatMul") == 2  # for the step itself, and for what is timed
