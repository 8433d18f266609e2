import json
from pathlib import Path

import numpy as np
import pytest
from conftest import TINY, build, tiny_weights

WHERE = """g (float[8] x) => (float loss, int64[1, found] i) {
    e = Exp (x)
    p = Mul (e, w)
    i = NonZero (p)
    loss = ReduceSum <keepdims = 0> (p)
}"""


def document(outcome):
    assert outcome.code == 0
    return json.loads(outcome.out)


def test_the_peak_is_what_run_plans(run, tiny_model):
    report = document(run("report", tiny_model, "--dim", "batch=4", "--format", "json"))
    step = document(run("run", tiny_model, "--dim", "batch=4", "--format", "json"))

    assert report["models"][0]["peak_bytes"] == step["arena_bytes"]


def test_a_forward_model_and_its_training_graph_are_one_report(run, tiny_model):
    assert run("grad", tiny_model).code == 0

    one, two = document(
        run("report", tiny_model, "tiny.grad.onnx", "--batch", "4", "--format", "json")
    )["models"]

    assert one.pop("model") != two.pop("model")
    assert one == two


def test_open_sizes_are_assumed_and_said(run, tiny_model):
    outcome = run("report", tiny_model, "--format", "json")

    assert "assumed batch=1 (give --dim batch=N)\n" in outcome.err
    report = document(outcome)["models"][0]
    assert report["assumed"] == {"batch": 1}
    assert report["dims"] == {"batch": 1}


def test_given_sizes_are_not_assumed(run, tiny_model):
    for flags in (("--dim", "batch=4"), ("--batch", "4"), ("--shape", "x=4x8")):
        outcome = run("report", tiny_model, *flags, "--format", "json")

        assert "assumed" not in outcome.err
        assert document(outcome)["models"][0]["assumed"] == {}
        assert document(outcome)["models"][0]["dims"] == {"batch": 4}


def test_regions_and_gaps_add_up_to_the_peak(run, tiny_model):
    report = document(run("report", tiny_model, "--batch", "4", "--format", "json"))["models"][0]

    assert sum(report["regions"].values()) + report["gap_bytes"] == report["peak_bytes"]


def test_it_writes_nothing(run, tiny_model, tmp_path):
    before = sorted(tmp_path.iterdir())

    assert run("report", tiny_model).code == 0
    assert sorted(tmp_path.iterdir()) == before


def test_one_model_has_regions_a_timeline_and_tensors(run, tiny_model):
    out = run("report", tiny_model, "--batch", "4").out

    assert out.startswith("peak ")
    assert " region " in out
    assert "backward from step" in out
    assert " tensor " in out
    assert out.count(", not measured (gradtool run --measure)") == 1


def test_top_limits_the_tensors(run, tiny_model):
    out = run("report", tiny_model, "--batch", "4", "--top", "2", "--by", "tensor").out

    assert len(out.splitlines()) == 6
    assert "more: " in out


@pytest.mark.parametrize("by", ["region", "op", "phase", "module"])
def test_a_breakdown_ends_with_the_peak(run, tiny_model, by):
    rows = run("report", tiny_model, "--by", by, "--format", "csv").out.splitlines()

    assert rows[-1].startswith("peak,")
    assert rows[-1].endswith(",100.0 %")


@pytest.mark.parametrize("form", ["csv", "markdown"])
def test_several_models_are_rows(run, tiny_model, form):
    run("grad", tiny_model)

    out = run("report", tiny_model, "tiny.grad.onnx", "--format", form).out

    assert out.count("tiny.grad.onnx") == 1
    assert ("|" in out) == (form == "markdown")


def test_operators_without_a_rule_are_a_table(run, model):
    header = '<ir_version: 10, opset_import: ["" : 20, "com.acme" : 1]>'
    path = model(build(TINY.replace("Exp (s)", "com.acme.Gate (s)"), header, **tiny_weights()))

    outcome = run("report", path)

    assert (outcome.code, outcome.out) == (3, "")
    assert " com.acme::Gate " in outcome.err
    assert outcome.err.splitlines()[-1].startswith("gradtool: no gradient for com.acme::Gate")


def test_sizes_that_data_decides_are_said(run, model):
    path = model(WHERE, w=np.ones(8, np.float32))

    outcome = run("report", path)

    assert outcome.code == 0
    assert "not counted, their sizes depend on data: results of NonZero (1)\n" in outcome.out
    report = document(run("report", path, "--format", "json"))["models"][0]
    assert report["unsized"] == {"NonZero": 1}


def test_standard_input_is_read_once(run):
    outcome = run("report", "-", "-")

    assert outcome.code == 2
    assert outcome.err == "gradtool: standard input can be read once: give - once\n"


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["cnn", "transformer", "lstm"])
def test_a_written_graph_is_planned_as_the_one_in_memory(run, name):
    sample = Path(__file__).parents[2] / "samples" / f"{name}.onnx"
    assert run("grad", sample, "-o", "written.onnx").code == 0

    one, two = document(run("report", sample, "written.onnx", "--batch", "2", "--format", "json"))[
        "models"
    ]

    assert one["peak_bytes"] == two["peak_bytes"]
    assert one["alive"] == two["alive"]
    assert two["unsized"] == {}


def test_what_keeping_less_saves_is_a_table_of_three_steps(run, model):
    text = TINY.replace("e = Exp (s)", "e = Relu (s)")
    path = model(text, "relu.onnx", **tiny_weights())

    out = run("report", path, "--batch", "4").out
    rows = document(run("report", path, "--batch", "4", "--format", "json"))["models"][0]["savings"]

    assert " saved for backward " in out
    assert [row["step"] for row in rows] == ["plain", "masks", "hoisting"]
    assert rows[0]["crossing_bytes"] >= rows[1]["crossing_bytes"] >= rows[2]["crossing_bytes"]
    assert rows[2]["total_bytes"] <= rows[0]["total_bytes"]
    assert rows[0]["moved"] == {}


def test_savings_are_those_of_the_sizes_that_are_planned(run, tiny_model):
    """A step is the plain one at most; what is planned is the last of them."""
    report = document(run("report", tiny_model, "--batch", "4", "--format", "json"))["models"][0]

    assert report["savings"][-1]["total_bytes"] == report["total_bytes"]
