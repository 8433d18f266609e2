"""`gradtool schema`: what the outputs are checked against, and that they are so."""

from __future__ import annotations

import json

import click
import jsonschema
import numpy as np
import pytest
import trainings
from deep import deep
from gates import CONFIG, failing, gate, passing, write

from gradtool.commands.group import group
from gradtool.commands.schema import SCHEMAS, schema_named
from gradtool.reports.gate import RENDERERS


@pytest.fixture
def schema(run):
    def printed(name):
        outcome = run("schema", name)
        assert outcome.code == 0
        return json.loads(outcome.out)

    return printed


@pytest.fixture
def valid(schema):
    """Checks a document, or the JSON that a command printed, against a schema."""

    def check(name, document):
        given = json.loads(document.out) if hasattr(document, "out") else document
        jsonschema.Draft202012Validator(schema(name)).validate(given)
        return given

    return check


@pytest.fixture
def net(model):
    return model(deep("64"), "deep.onnx")


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one_and_demands_a_version(schema, name):
    found = schema(name)

    jsonschema.Draft202012Validator.check_schema(found)
    assert found["title"]
    for wrong in ({}, {"schema_version": 2}, []):
        assert not jsonschema.Draft202012Validator(found).is_valid(wrong)


def test_every_schema_is_printed_by_a_name_and_listed(run):
    outcome = run("schema")
    assert outcome.code == 0
    assert [line.split()[0] for line in outcome.out.splitlines()[2:]] == list(SCHEMAS)


def test_every_command_that_prints_json_has_a_schema():
    context = click.Context(group)
    found = []
    for name in group.list_commands(context):
        options = group.get_command(context, name).params
        choices = [c for o in options for c in getattr(o.type, "choices", ())]
        if "json" in choices:
            found.append(name)

    assert {"grad", "mirror", "recompute", "report", "run", "compare", "ops", "doctor"} <= {*found}
    told = " ".join(said for said, _ in SCHEMAS.values()).split()
    assert [name for name in found if name not in told] == []


def test_an_unknown_name_is_refused(run):
    outcome = run("schema", "reprot")

    assert outcome.code == 2
    assert "'report'" in outcome.err


def test_report(run, valid, net):
    valid("report", run("report", net, "--format", "json"))


@pytest.mark.parametrize("by", ["plan", "op"])
def test_mirror_report(run, valid, net, by):
    valid("plans", run("mirror", net, "--report", "--by", by, "--format", "json"))


def test_recompute_and_a_plan_in_a_file(run, valid, net, tmp_path):
    valid("plans", run("recompute", net, "--strategy", "sqrt", "--format", "json"))
    assert run("recompute", net, "--strategy", "sqrt", "-o", "plan.json").code == 0
    valid("plan", json.loads((tmp_path / "plan.json").read_text()))


def test_pages_and_traces(run, valid, net):
    drawn = ("--html", "a.html", "--trace", "a.trace")
    valid("plans", run("report", net, *drawn, "--plan", "sqrt", "--format", "json"))


@pytest.mark.parametrize("tensor", ["s1", "x", "loss"])
def test_explanations(run, valid, net, tensor):
    valid("explain", run("mirror", net, "--explain", tensor, "--format", "json"))


def test_curves(run, valid, net):
    found = run("run", net, "--explain-kernels", "--kernels", "native", "--format", "json")
    assert valid("kernels", found)["steps"]

    found = run("recompute", net, "--frontier", "--points", "3", "--format", "json")
    assert valid("frontier", found)["points"]


def test_the_largest_batch(run, valid, tiny_model):
    asked = ("--max-batch", "--memory", "64KiB", "--format", "json")
    assert valid("max-batch", run("recompute", tiny_model, *asked))["max_batch"]["keep"]


@pytest.mark.parametrize("flags", [(), ("--split",), ("--optimizer", "adam"), ("--head-grads",)])
def test_grad(run, valid, tiny_model, flags):
    valid("grad", run("grad", tiny_model, "--format", "json", *flags))


@pytest.mark.parametrize("flags", [(), ("--eval", "data.npz"), ("--ema", "0.5")])
def test_train(run, valid, model, tmp_path, flags):
    model(trainings.proto())
    np.savez(tmp_path / "data.npz", **trainings.examples(8))
    shown = run("train", "model.onnx", "--data", "data.npz", "--batch", "4", "--format", "json",
                *flags)  # fmt: skip

    assert valid("train", shown)["steps"] == 2


def test_predict(run, valid, model, tmp_path):
    model(trainings.proto())
    np.savez(tmp_path / "data.npz", **trainings.examples(8))
    given = ("--data", "data.npz", "--metric", "accuracy", "--metric", "confusion", "-o", "y.npz")
    shown = run("predict", "model.onnx", *given, "--format", "json")

    assert valid("predict", shown)["examples"] == 8


def test_operators_registered_missing_and_of_a_model(run, valid, net):
    valid("ops", run("ops", "--format", "json"))
    valid("ops", run("ops", "--missing", "--format", "json"))
    used = valid("ops", run("ops", net, "--format", "json"))

    assert not _fits("ops", {**used, "model": 1})
    del used["model"]
    assert not _fits("ops", used)


def _fits(name, document):
    return jsonschema.Draft202012Validator(schema_named(name)).is_valid(document)


def test_doctor(run, valid):
    valid("doctor", run("doctor", "--format", "json"))


def test_the_cases_of_a_configuration(run, valid, tmp_path):
    (tmp_path / "gradtool.toml").write_text(CONFIG + 'limit = { peak = "2GiB" }\nwrt = "w*"\n')
    valid("cases", run("check", "--list", "--output", "json"))


def test_profiles(run, valid, net, tmp_path):
    assert run("run", net, "--device", "cpu", "--profile", "p.json").code == 0
    assert valid("profile", json.loads((tmp_path / "p.json").read_text()))["nodes"]


def test_run(run, valid, net):
    valid("run", run("run", net, "--measure", "--device", "cpu", "--format", "json"))
    valid("run", run("run", net, "--fetch", "s1", "--device", "cpu", "--format", "json"))


def test_numbers_that_json_lacks_are_text(run, valid, model, tmp_path):
    path = model("nan (float[2] x) => (float loss) {"
                 " y = Log (x) loss = ReduceMean <keepdims = 0> (y) }")  # fmt: skip
    np.savez(tmp_path / "i.npz", x=np.zeros(2, np.float32))

    found = valid(
        "run", run("run", path, "--inputs", "i.npz", "--device", "cpu", "--format", "json")
    )

    assert (found["loss"], found["gradients"]["x"]["norm"]) == ("-inf", "inf")


def test_check_and_baselines(run, valid, tmp_path):
    (tmp_path / "gradtool.toml").write_text(CONFIG)
    write(tmp_path / "net.onnx")
    for flags in (("--update",), (), ("--run",)):
        valid("check", run("check", "-j", "1", "--output", "json", *flags))
    valid("baseline", json.loads((tmp_path / "gradtool-baseline" / "net.json").read_text()))


def test_failures_and_errors_are_within_the_schema(valid):
    told = gate(failing(), failing(error="no such file"), passing(), base="v1")

    valid("check", json.loads(RENDERERS["json"](told)))
