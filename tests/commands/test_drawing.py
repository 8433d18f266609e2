import json

import numpy as np
import pytest


def test_a_page_and_a_trace_are_written_and_said(run, tiny_model, tmp_path):
    outcome = run("report", tiny_model, "--batch", "4", "--html", "a.html", "--trace", "a.json")

    assert outcome.code == 0
    assert "recompute sqrt" in outcome.out
    assert "wrote a.html (" in outcome.out
    assert (tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    trace = json.loads((tmp_path / "a.json").read_text())
    assert trace["otherData"]["model"] == str(tiny_model)
    assert {event["pid"] for event in trace["traceEvents"]} == {1, 2, 3}


def test_plans_are_those_that_are_named_and_keep(run, tiny_model):
    outcome = run("report", tiny_model, "--batch", "4", "--html", "a.html",
                  "--plan", "segments", "--plan", "none", "--plan", "reorder",
                  "--format", "json")  # fmt: skip

    document = json.loads(outcome.out)
    assert [plan["plan"] for plan in document["plans"]] == ["keep", "segments", "reorder"]
    assert list(document["written"]) == ["a.html"]


def test_a_plan_in_a_file_is_one_of_the_plans_and_is_called_by_the_file(run, tiny_model, tmp_path):
    planned = run("recompute", tiny_model, "--batch", "4", "--strategy", "sqrt", "-o", "p.json")
    assert planned.code == 0

    outcome = run("report", tiny_model, "--batch", "4", "--html", "a.html", "--trace", "a.json",
                  "--plan", "sqrt", "--plan", "p.json", "--plan", "p.json",
                  "--format", "json")  # fmt: skip

    document = json.loads(outcome.out)
    names = [plan["plan"] for plan in document["plans"]]
    sqrt, file = document["plans"][1:]
    assert names == ["keep", "sqrt", "p.json"]
    assert {**sqrt, "plan": ""} == {**file, "plan": ""}
    assert "plan: p.json" in document["notes"]
    assert '"title":"p.json"' in (tmp_path / "a.html").read_text()
    assert "p.json: planned" in (tmp_path / "a.json").read_text(encoding="utf-8")


def test_a_plan_for_other_sizes_is_refused_and_nothing_is_written(run, tiny_model, tmp_path):
    run("recompute", tiny_model, "--batch", "4", "--strategy", "sqrt", "-o", "p.json")

    outcome = run("report", tiny_model, "--batch", "8", "--html", "a.html", "--plan", "p.json")

    assert outcome.code == 2
    assert outcome.err.endswith("gradtool: p.json: the plan is for batch=4, here it is 8\n")
    assert not (tmp_path / "a.html").exists()


def test_the_frontier_is_part_of_the_page(run, tiny_model, tmp_path):
    outcome = run("report", tiny_model, "--batch", "4", "--html", "a.html", "--frontier")

    assert outcome.code == 0
    assert '"frontier":[{"budget":' in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--plan", "sqrt"), "--plan needs --html or --trace"),
        (("--frontier",), "--frontier needs --html"),
        (("--frontier", "--trace", "a.json"), "--frontier needs --html"),
        (("--html", "a", "--trace", "a"), "--html and --trace name the same file"),
        (("--html", "a.onnx", "--force"), "--html a.onnx: that is the name of a model"),
        (("--html", "a.html", "--by", "op"), "--html is of plans: leave out --by"),
        (("--html", "missing/a.html"), "there is no folder"),
        (("--html", "a.html", "--plan", "sqr"), "no plan 'sqr'; did you mean 'sqrt'?"),
        (("--html", "a.html", "--plan", "p.json"), "p.json: cannot be read: No such file"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(run, tiny_model, flags, message):
    outcome = run("report", tiny_model, "--batch", "4", *flags)

    assert outcome.code == 2
    assert message in outcome.err


def test_a_page_is_of_one_model(run, tiny_model):
    outcome = run("report", tiny_model, tiny_model, "--html", "a.html")

    assert outcome.code == 2
    assert "several models are shown side by side: leave out --html" in outcome.err


def test_a_file_that_is_there_is_kept_without_force(run, tiny_model, tmp_path):
    (tmp_path / "a.html").write_text("mine")

    refused = run("report", tiny_model, "--html", "a.html")
    mine = (tmp_path / "a.html").read_text()
    forced = run("report", tiny_model, "--html", "a.html", "--force")

    assert (refused.code, mine, forced.code) == (2, "mine", 0)
    assert "pass --force" in refused.err
    assert (tmp_path / "a.html").read_text() != "mine"


def test_run_writes_a_trace_of_what_each_step_took(run, tiny_model, tiny_inputs, tmp_path):
    outcome = run("run", tiny_model, "--inputs", tiny_inputs, "--measure", "--trace", "t.json",
                  "--plan", "sqrt")  # fmt: skip

    assert outcome.code == 0
    trace = json.loads((tmp_path / "t.json").read_text())
    assert trace["otherData"]["time"] == "measured"
    assert trace["otherData"]["arena_high_water_bytes"] <= trace["otherData"]["planned_bytes"]
    durations = [event["dur"] for event in trace["traceEvents"] if event["ph"] == "X"]
    assert np.all(np.array(durations) > 0)


def test_stock_onnxruntime_has_no_trace(run, tiny_model, tiny_inputs):
    outcome = run(
        "run", tiny_model, "--inputs", tiny_inputs, "--engine", "ort", "--trace", "t.json"
    )

    assert outcome.code == 2
    assert "--trace" in outcome.err
