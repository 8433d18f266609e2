"""`gradtool recompute` within a budget: what is written, said and refused."""

import json

import pytest
from deep import deep

import gradtool as gt
from gradtool.commands import budgeting


@pytest.fixture
def net(model):
    return model(deep("256"), "deep.onnx")


def document(outcome):
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def recompute(run, net, *flags):
    return run("recompute", net, *flags, "--strategy", "min-cut", "--format", "json", "--force")


def test_a_budget_is_met_by_what_runs(run, net):
    found = document(recompute(run, net, "--budget", "75%"))
    keep, plan = found["plans"]
    step = document(run("run", "deep.recompute.onnx", "--format", "json"))

    assert 4 * plan["peak_bytes"] <= 3 * keep["peak_bytes"]
    assert step["arena_bytes"] == plan["peak_bytes"]
    proof = plan["proof"]
    assert proof["bound_work"] <= proof["extra_work"] == plan["extra_flops"]
    assert 0 < plan["lower_bound_bytes"] <= plan["peak_bytes"]


def test_the_answer_says_work_bound_and_gap(run, net):
    outcome = run("recompute", net, "--max-slowdown", "10%", "--strategy", "min-cut")

    assert outcome.code == 0
    assert "lower bound" in outcome.out
    assert "min-cut: extra work " in outcome.out
    assert " gap " in outcome.out


def test_an_unreachable_budget_is_one_line_and_exit_1(run, net, tmp_path):
    outcome = recompute(run, net, "--budget", "1KiB")

    assert outcome.code == 1
    assert "1.00 KiB cannot be reached: the smallest budget" in outcome.err.splitlines()[-1]
    assert not (tmp_path / "deep.recompute.onnx").exists()


def test_a_forward_model_gets_the_updates_of_the_optimizer(run, net, tmp_path):
    flags = ("--budget", "90%", "--optimizer", "adam")
    outcome = recompute(run, net, *flags)
    kept, found = document(outcome)["plans"]
    plain = document(recompute(run, net, "--budget", "90%", "-o", "plain.onnx"))["plans"][0]
    written = gt.load(tmp_path / "deep.recompute.onnx")

    assert "optimizer: adam" in outcome.err
    assert "gradtool.optimizer" in written.metadata_props
    assert plain["peak_bytes"] < kept["peak_bytes"]
    assert found["peak_bytes"] <= 0.9 * kept["peak_bytes"]
    assert not any("with the state of adam" in note for note in document(outcome)["notes"])


def test_the_state_beside_a_model_that_holds_its_gradients_is_counted_and_said(run, net):
    assert run("grad", net).code == 0
    flags = ("--budget", "90%", "--optimizer", "adam")
    outcome = recompute(run, "deep.grad.onnx", *flags, "-o", "counted.onnx")

    assert outcome.code == 0, outcome.err
    assert any("with the state of adam" in note for note in document(outcome)["notes"])


def test_the_state_is_not_counted_twice(run, net):
    assert run("grad", net, "--optimizer", "sgd").code == 0
    outcome = recompute(run, "deep.grad.onnx", "--budget", "90%", "--optimizer", "adam")

    assert outcome.code == 2
    assert outcome.err.endswith(
        "the model updates its parameters, and the state of that is counted: name no optimizer\n"
    )


def test_a_plan_goes_through_a_file(run, net):
    written = document(recompute(run, net, "--budget", "75%", "-o", "p.json"))["plans"][1]
    assert run("recompute", net, "--plan", "p.json", "--force").code == 0
    direct = document(run("run", net, "--plan", "p.json", "--format", "json"))
    model = document(run("run", "deep.recompute.onnx", "--format", "json"))

    assert direct["arena_bytes"] == model["arena_bytes"] == written["peak_bytes"]
    assert direct["loss"] == model["loss"]


def test_a_plan_for_other_sizes_is_refused(run, model):
    net = model(deep(), "open.onnx")
    assert recompute(run, net, "--batch", "64", "--budget", "90%", "-o", "p.json").code == 0
    for command in ("run", "recompute"):
        outcome = run(command, net, "--batch", "32", "--plan", "p.json")

        assert outcome.code == 2
        assert "the plan is for batch=64, here it is 32" in outcome.err


def test_measured_times_are_what_work_costs(run, net):
    assert run("run", net, "--profile", "t.json").code == 0
    found = document(recompute(run, net, "--budget", "75%", "--cost", "t.json"))

    assert found["plans"][1]["proof"]["unit"] == "ns"


def test_times_measured_now(run, net):
    found = document(recompute(run, net, "--budget", "75%", "--cost", "time"))

    assert found["plans"][1]["proof"]["unit"] == "ns"


REFUSED = {
    "two goals": (("--budget", "60%", "--max-slowdown", "1%"), "cannot be combined with"),
    "a budget for a recipe": (("--budget", "60%", "--strategy", "sqrt"), "cannot be combined with"),
    "memory alone": (("--budget", "60%", "--memory", "8GiB"), "--memory needs --max-batch"),
    "no memory": (("--max-batch",), "--max-batch needs --memory"),
    "no size": (("--budget", "8G"), "'8G' is ambiguous"),
    "no percentage": (("--max-slowdown", "fast"), "is not a percentage"),
    "no duration": (("--budget", "min", "--time-limit", "soon"), "is not a duration"),
    "no plan": (("--plan", "none.json"), "none.json: cannot be read"),
    "no profile": (("--budget", "min", "--cost", "none.json"), "none.json: cannot be read"),
    "an output of nothing": (("--frontier", "-o", "x.onnx"), "--frontier writes nothing"),
    "a fixed batch": (("--max-batch", "--memory", "1GiB"), "its batch is fixed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(run, net, case):
    flags, message = REFUSED[case]

    outcome = run("recompute", net, *flags)

    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err.splitlines()[-1]


def test_no_such_plan(run, net):
    outcome = run("run", net, "--plan", "optimum")

    assert outcome.code == 2
    assert "no plan 'optimum'; did you mean 'optimal'?" in outcome.err


@pytest.mark.parametrize(
    ("limit", "spent", "left"), [(None, 3.0, None), (30.0, 5.0, 20.0), (5.0, 4.0, 0.5)]
)
def test_reading_and_writing_count_towards_a_time_limit(limit, spent, left):
    assert budgeting.within_limit({"time_limit": limit}, spent)["time_limit"] == left
