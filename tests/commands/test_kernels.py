"""`run --kernels` and `--explain-kernels`."""

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from conftest import sampled
from native_calls import FOUND, needs_library

from gradtool.exec.arena_views import ArenaViews
from gradtool.native import library
from gradtool.text.units import format_bytes

SAMPLES = Path(__file__).parents[2] / "samples"
NAMES = ("cnn", "lstm", "transformer")
ASKED = {"numpy": ["--kernels", "numpy"], "native": ["--kernels", "native"],
         "exact": ["--kernels", "native", "--exact-conv"]}  # fmt: skip


def documented(run, *arguments):
    done = run(*arguments, "--format", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)


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
    theirs, _ = gradients("--kernels", "numpy")

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
    assert all(step["why"] and step["nodes"][-1] == step["node"] for step in steps)


def test_what_numpy_is_asked_for_says_what_would_fit(run, tiny_model):
    steps = explained(run, tiny_model, "--kernels", "numpy")

    assert {step["provider"] for step in steps} == {"numpy"}
    (product, *_) = (step for step in steps if step["operator"] == "MatMul")
    assert product["why"] == "it fits, but numpy is asked for"


@pytest.mark.exhaustive
@needs_library
def test_convolutions_are_sums_of_products_if_asked_for(run, tmp_path):
    sample = Path(__file__).parents[2] / "samples" / "cnn.onnx"
    methods = {
        how: {step["method"] for step in explained(run, sample, "--kernels", "native", *how)}
        for how in ((), ("--exact-conv",))
    }
    found = {}
    for how in (["numpy"], ["native"], ["native", "--exact-conv"]):
        verified = ("--verify", "plans") if "--exact-conv" in how else ()
        done = run("run", sample, "--batch", "2", "--kernels", *how, "--measure", "--force",
                   "--save-grads", tmp_path / "g.npz", *verified)  # fmt: skip
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
    assert "--kernels native cannot be combined with --device cuda" in done.err


@needs_library
@pytest.mark.parametrize("flag", ["--profile", "--trace"])
def test_what_is_timed_are_the_kernels_that_run(run, tiny_model, monkeypatch, flag):
    bound, block = [], ArenaViews.block

    def noted(arrays, step, signature):
        bound.append(step.op)
        return block(arrays, step, signature)

    monkeypatch.setattr(ArenaViews, "block", noted)
    done = run("run", tiny_model, "--batch", "2", "--kernels", "native", flag, "f.json")

    assert done.code == 0
    assert bound.count("MatMul") == 2  # for the step itself, and for what is timed


@pytest.mark.exhaustive
@pytest.mark.sample(2)
@pytest.mark.parametrize(("kernels", "model"), sampled(product(ASKED, NAMES), 9))
def test_what_is_reported_is_what_a_run_takes(run, model, kernels):
    sample, flags = SAMPLES / f"{model}.onnx", ["--batch", "2", *ASKED[kernels]]
    (report,) = documented(run, "report", sample, *flags)["models"]
    plans = documented(run, "mirror", sample, "--report", *flags)["plans"]

    assert report["peak_bytes"] == plans[0]["peak_bytes"]
    assert report["savings"][-1]["total_bytes"] == report["total_bytes"]
    if FOUND or kernels == "numpy":
        measured = documented(run, "run", sample, "--measure", *flags)
        assert measured["arena_bytes"] == report["peak_bytes"]
        assert measured["measured"]["arena_high_water_bytes"] <= report["peak_bytes"]


@pytest.mark.parametrize(
    "command",
    [["report"], ["mirror", "--report"], ["recompute", "--frontier"],
     ["recompute", "--max-batch", "--memory", "2MiB"]],
)  # fmt: skip
def test_commands_say_which_kernels_they_plan_for(run, tiny_model, command):
    name, *options = command
    sizes = [] if "--max-batch" in options else ["--batch", "2"]
    for kernels, flags in ASKED.items():
        found = documented(run, name, tiny_model, *options, *sizes, *flags)
        found = found["models"][0] if name == "report" else found
        assert found["kernels"] in ({"numpy"} if kernels == "numpy" else {"native", "exact"})


@pytest.mark.parametrize("command", [["report"], ["mirror"], ["recompute", "--strategy", "sqrt"],
                                     ["compare"], ["run"]])  # fmt: skip
def test_exact_convolutions_of_numpy_are_refused(run, tiny_model, command):
    name, *options = command
    done = run(name, tiny_model, *options, "--exact-conv")

    assert done.code == 2
    assert "--exact-conv needs --kernels native" in done.err


def test_a_plan_in_a_file_is_for_its_kernels(run, tiny_model, tmp_path):
    plan = tmp_path / "plan.json"
    native = ASKED["native"]
    made = run("recompute", tiny_model, "--batch", "2", "--strategy", "sqrt", "-o", plan, *native)
    assert made.code == 0
    assert json.loads(plan.read_text())["kernels"] == "native"
    for command in (["run"], ["recompute", "-o", tmp_path / "m.onnx"]):
        name, *options = command
        given = [name, tiny_model, "--batch", "2", "--plan", plan, *options]
        refused = run(*given, "--kernels", "numpy")
        assert refused.code == 2
        assert refused.err.strip().endswith("here it is for numpy's kernels: say --kernels native")
        assert run(*given, *native).code == run(*given).code == 0


@pytest.mark.exhaustive
def test_without_a_library_a_plan_for_it_runs_and_both_peaks_are_said(run, monkeypatch):
    monkeypatch.setattr(library, "status", lambda: (None, "built without native kernels"))
    sample, flags = SAMPLES / "cnn.onnx", ["--batch", "2", "--plan", "mirror"]
    done = run("run", sample, *flags, "--measure", *ASKED["native"])
    peaks = {
        kernels: documented(run, "mirror", sample, "--report", "--batch", "2", *ASKED[kernels])
        for kernels in ("numpy", "native")
    }
    there = next(p for p in peaks["native"]["plans"] if p["plan"] == "mirror")["peak_bytes"]

    assert done.code == 0
    assert f"planned for native kernels: {format_bytes(there)}; planned anew for " in done.err


def test_one_model_planned_for_two_kernels_is_compared(run, tiny_model, tmp_path):
    for name, kernels in (("a", "numpy"), ("b", "native")):
        found = documented(run, "report", tiny_model, "--batch", "2", *ASKED[kernels])
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
    done = run("compare", tmp_path / "a.json", tmp_path / "b.json")

    assert "before is planned for numpy's kernels, now for native kernels" in done.out


# --------------------------------------------------------------------------------- CuPy's


def test_kernels_of_cupy_on_the_cpu_are_refused(run, tiny_model):
    done = run("run", tiny_model, "--batch", "2", "--kernels", "cupy", "--device", "cpu")

    assert done.code == 2
    assert "--kernels cupy cannot be combined with --device cpu" in done.err


@pytest.mark.parametrize("more", [[], ["--explain-kernels"], ["--profile", "p.json"]])
def test_kernels_of_cupy_want_a_device(run, tiny_model, more, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    done = run("run", tiny_model, "--batch", "2", "--kernels", "cupy", *more)

    assert done.code == 4
    assert "CuPy is not installed" in done.err
    assert not done.out


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sampled(NAMES))
def test_every_command_plans_for_cupy(run, name, tmp_path):
    model = SAMPLES / f"{name}.onnx"
    sized = ["--batch", "8", "--kernels", "cupy"]
    peaks = set()
    for command in (["report"], ["mirror", "--report"], ["compare"]):
        sources = [model, model] if command == ["compare"] else [model]
        done = run(*command[:1], *sources, *command[1:], *sized)
        assert done.code == 0, done.err
        if command != ["compare"]:
            assert "planned for CuPy's kernels" in done.out
            assert "gradtool run --kernels cupy --measure" in done.out
    plan = tmp_path / "plan.json"
    done = run("recompute", model, *sized, "--strategy", "sqrt", "-o", plan)
    assert done.code == 0, done.err
    assert json.loads(plan.read_text())["kernels"] == "cupy"
    for kernels in ("cupy", "numpy"):
        done = run("report", model, "--batch", "8", "--kernels", kernels, "--format", "json")
        (found,) = json.loads(done.out)["models"]
        peaks.add(found["peak_bytes"])
    done = run("run", model, "--batch", "8", "--plan", plan, "--kernels", "numpy")

    assert len(peaks) == 2 or name == "lstm"
    assert done.code == 2
    assert "the plan is for CuPy's kernels, here it is for numpy's kernels" in done.err
    assert "say --kernels cupy" in done.err
