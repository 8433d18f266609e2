"""Without the native library: what searches for a plan says so in one line, the rest works."""

import json

import numpy as np
import pytest
from deep import deep
from trainings import examples, proto

import gradtool as gt
from gradtool.errors import DeviceError
from gradtool.native import library

WHY = "built without native kernels: python native/build.py"
NEEDED = f"a search for a plan needs the native library: {WHY}"
LINE = f"gradtool: {NEEDED}; reorder, mirror, sqrt and segments do without\n"
ABSENT = "absent.onnx"  # no command comes to look for it


@pytest.fixture(autouse=True)
def no_library(monkeypatch):
    def load():
        raise library.Unavailable(WHY)

    monkeypatch.setattr(library, "load", load)
    monkeypatch.setattr(library, "is_available", lambda: False)


@pytest.fixture
def net(model):
    return model(deep("batch"), "deep.onnx")


@pytest.mark.parametrize(
    "words",
    [
        "recompute --strategy optimal",
        "recompute --strategy min-cut",
        "recompute --budget 60%",
        "recompute --budget min --strategy min-cut",
        "recompute --max-slowdown 20%",
        "recompute --frontier",
        "recompute --max-batch --memory 1MiB",
        "run --plan optimal",
        "report --plan optimal --html page.html",
        "kit --plan min-cut --optimizer sgd",
        "compare --plan optimal",
    ],
)
def test_a_search_ends_in_one_line_before_a_model_is_read(run, tmp_path, words):
    outcome = run(*words.split(), ABSENT)

    assert (outcome.code, outcome.out, outcome.err) == (4, "", LINE)
    assert not list(tmp_path.iterdir())


def test_what_is_asked_for_is_looked_at_first(run):
    outcome = run("recompute", ABSENT, "--budget", "60%", "--strategy", "optimum")

    assert outcome.code == 2
    assert "optimal" in outcome.err


@pytest.mark.parametrize("strategy", ["reorder", "mirror", "sqrt", "segments"])
def test_a_strategy_that_searches_for_nothing_writes_its_model(run, net, tmp_path, strategy):
    outcome = run("recompute", net, "--batch", "64", "--strategy", strategy)

    assert outcome.code == 0
    assert (tmp_path / "deep.recompute.onnx").exists()


def test_a_table_of_plans_has_no_row_for_optimal_and_says_why(run, net):
    table = run("mirror", net, "--report", "--batch", "64", "--memory", "1MiB")
    document = run("mirror", net, "--report", "--batch", "64", "--format", "json")
    plans = [each["plan"] for each in json.loads(document.out)["plans"]]

    assert table.code == document.code == 0
    assert table.out.splitlines()[-1] == f"no row for optimal: {NEEDED}"
    assert "recompute sqrt" in table.out
    assert "recompute optimal" not in table.out
    assert plans == ["keep", "reorder", "mirror", "sqrt"]
    assert document.err.splitlines()[-1] == f"no row for optimal: {NEEDED}"


def test_the_other_plans_have_the_bits_of_keep(run, net):
    outcome = run("run", net, "--batch", "4", "--verify", "plans")

    assert outcome.code == 0
    said = outcome.out + outcome.err
    assert "the same bits in reorder, mirror, sqrt, segments as in keep" in said
    assert NEEDED in said


def test_a_case_that_has_a_budget_cannot_be_measured_and_others_are(run, net, tmp_path):
    case = f'[[case]]\nmodel = "{net.name}"\ndims = {{ batch = 4 }}\n'
    plans = ('name = "few"\nplan = { budget = "60%" }', 'name = "all"\nplan = "mirror"')
    (tmp_path / "gradtool.toml").write_text("".join(f"{case}{plan}\n" for plan in plans))
    outcome = run("check", "-j", "1", "--format", "json")
    few, whole = json.loads(outcome.out)["cases"]

    assert outcome.code == 4
    assert any(NEEDED in reason for reason in few["reasons"])
    assert few["metrics"] is None
    assert whole["metrics"]["peak"] > 0


def test_a_training_that_has_too_little_memory_to_keep_everything_says_so(run, model, tmp_path):
    np.savez(tmp_path / "data.npz", **examples(50))
    model(proto(), "net.onnx")
    outcome = run("train", "net.onnx", "--data", "data.npz", "--batch", "8", "--memory", "1KiB")

    assert outcome.code == 4
    assert outcome.err.splitlines()[-1] + "\n" == LINE


def test_in_python_it_is_a_device_error(net):
    training = gt.grad(gt.load(net))
    plain = gt.grad(gt.load(net, dims={"batch": 64}))
    for ask in (
        lambda: gt.recompute(plain, "optimal"),
        lambda: gt.recompute(plain, gt.Budget("60%")),
        lambda: gt.frontier(plain),
        lambda: gt.max_batch(training, "1MiB"),
    ):
        with pytest.raises(DeviceError, match="needs the native library"):
            ask()

    assert gt.max_batch(training, "1MiB", plans=["keep", "sqrt"])["keep"] > 0
    assert gt.recompute(plain, "sqrt").plan.peak <= gt.plan(plain).peak
