"""The metrics of a case are those of its plan, whole numbers all."""

from __future__ import annotations

import dataclasses

import pytest
from gates import case, write

import gradtool as gt
from gradtool.check import METRICS, Choice, measure
from gradtool.comparison.footprint import LONGEST, MOST_TENSORS, short
from gradtool.errors import GradtoolError, UsageError
from gradtool.workloads import strategies
from gradtool.workloads.plans import extra_flops, workload


@pytest.fixture
def net(tmp_path):
    def made(plan="mirror", batch=256, **shape):
        write(tmp_path / "net.onnx", **({"layers": 6} | shape))
        chosen = plan if isinstance(plan, Choice) else Choice(plan, {"strategy": plan})
        return case(folder=tmp_path, plan=chosen, dims={"batch": batch})

    return made


def planned(checked, strategy):
    made = gt.grad(gt.load(checked.path, dims=checked.dims)).model
    work = workload(made, kernels=checked.planned_for)
    return work, strategies.STRATEGIES[strategy](work)


@pytest.mark.parametrize("strategy", ["keep", "mirror", "sqrt"])
def test_the_metrics_are_those_of_the_plan(net, strategy):
    checked = net(strategy)
    work, found = planned(checked, strategy)

    values = measure(checked).values

    assert (values["peak"], values["load"]) == (found.plan.peak, found.plan.peak_live)
    assert values["extra-flops"] == extra_flops(found.plan, work.kept)
    assert values["nodes"] == len(found.plan.program.steps)
    assert values["parameters"] == found.plan.regions(0)["parameters"]
    assert [name for name in METRICS if name in values] == list(values)
    assert all(type(value) is int for value in values.values())


def test_a_tensor_that_is_computed_again_has_one_name(net):
    kept, mirrored = measure(net("keep")), measure(net("mirror"))

    assert mirrored["recomputed"] > 0
    assert sum(t.again for t in mirrored.tensors.values()) > 0
    assert not any("recompute" in name for name in mirrored.tensors)
    assert not any(t.again for t in kept.tensors.values())


@pytest.mark.parametrize("strategy", ["keep", "mirror"])
def test_what_tensors_and_operators_hold_is_what_the_plan_does(net, strategy):
    checked = net(strategy)
    _, found = planned(checked, strategy)

    metrics = measure(checked)

    assert metrics.left_out == 0
    assert sum(t.held for t in metrics.tensors.values()) == found.plan.peak_live
    always = sum(
        t.bytes
        for t in metrics.tensors.values()
        if t.region in ("parameters", "inputs", "constants")
    )
    assert sum(o.held for o in metrics.operators.values()) == found.plan.peak_live - always
    assert sum(o.nodes for o in metrics.operators.values()) == (
        metrics["nodes"] - metrics["recomputed"]
    )
    assert sum(o.flops for o in metrics.operators.values()) == metrics["flops"]
    assert sum(o.extra_flops for o in metrics.operators.values()) == metrics["extra-flops"]


def test_a_large_model_keeps_its_largest_tensors(net):
    metrics = measure(net("keep", layers=60))

    assert len(metrics.tensors) == MOST_TENSORS
    assert metrics.left_out > 0


def test_a_step_that_runs_stays_within_the_plan(net):
    for strategy in ("keep", "mirror"):
        values = measure(net(strategy, batch=8), run=True).values

        assert 0 < values["measured-arena"] <= values["peak"]
        assert values["measured-peak"] >= values["measured-arena"]


def test_long_names_are_bounded_and_still_their_own():
    one, two = (short(f"{'x' * 500}{n}{'y' * 500}") for n in "12")

    assert len(one) == len(two) <= LONGEST
    assert one != two
    assert short("short") == "short"


def test_open_sizes_are_to_be_given(net):
    with pytest.raises(UsageError, match=r"as in dims = \{ batch = 1 \}"):
        measure(case(folder=net().folder))


def test_a_training_graph_is_checked_as_it_is(net):
    checked = net("keep")
    path = checked.folder / "net.grad.onnx"
    gt.save(gt.grad(gt.load(checked.path)), path)

    written = measure(case(model=path.name, folder=checked.folder, dims=checked.dims))

    assert written["peak"] == gt.plan(gt.load(path, dims=checked.dims)).peak


@pytest.mark.exhaustive
def test_an_optimizer_updates_a_forward_model_and_of_a_training_graph_is_part_of_the_budget(net):
    asked = {"budget": "75%", "optimizer": "adam"}
    checked = net(Choice("x", asked), layers=4)
    path = checked.folder / "net.grad.onnx"
    gt.save(gt.grad(gt.load(checked.path)), path)
    forward, held = (gt.load(each, dims=checked.dims) for each in (checked.path, path))
    whole = gt.grad(forward, optimizer="adam")

    updated = measure(checked)
    counted = measure(dataclasses.replace(checked, model=path.name))

    assert updated["peak"] == gt.recompute(whole, gt.Budget("75%")).plan.peak
    assert updated["state"] > counted["state"] == 0
    assert counted["peak"] == gt.recompute(held, gt.Budget("75%"), optimizer="adam").plan.peak


def test_an_optimizer_is_not_counted_twice(net):
    checked = net(Choice("x", {"budget": "90%", "optimizer": "sgd"}))
    path = checked.folder / "net.grad.onnx"
    gt.save(gt.grad(gt.load(checked.path), optimizer="adam"), path)

    with pytest.raises(UsageError, match="name no optimizer"):
        measure(dataclasses.replace(checked, model=path.name))


@pytest.mark.parametrize(
    ("asked", "text"),
    [({"checkpoints": ("nix",)}, "checkpoint 'nix' does not exist"), ({"budget": 64}, "64 B")],
)
def test_a_plan_that_cannot_be_is_an_error(net, asked, text):
    with pytest.raises(GradtoolError, match=text):
        measure(net(Choice("x", asked)))


def test_a_policy_in_a_file_is_looked_for_beside_the_configuration(net):
    checked = net(Choice("mirror file", {}, "mine.toml"))
    (checked.folder / "mine.toml").write_text('keep = ["Tanh", "Sin"]\n')

    assert checked.plan.files == ("mine.toml",)
    assert measure(checked)["recomputed"] == 0
