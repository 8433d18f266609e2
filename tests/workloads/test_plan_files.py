"""Plans as files: what is written is planned again to the byte, and nothing else is believed."""

import dataclasses
import json

import onnx_ir as ir
import pytest
from deep import deep

import gradtool as gt
from gradtool import shapes
from gradtool.errors import UsageError
from gradtool.workloads import plan_files, strategies
from gradtool.workloads.plans import workload, write
from gradtool.workloads.proofs import lines


def made(batch="256", layers=3):
    model = ir.from_proto(deep(batch, layers))
    shapes.infer(model)
    return gt.grad(model, loss="loss").model


@pytest.fixture(scope="module")
def work():
    return workload(made())


@pytest.fixture(scope="module")
def found(work):
    return strategies.min_cut(work)


@pytest.fixture
def path(work, found, tmp_path):
    plan_files.save(work, found, tmp_path / "p.json")
    return tmp_path / "p.json"


def changed(path, **changes):
    document = json.loads(path.read_text())
    document |= {k: change(document[k]) for k, change in changes.items()}
    path.write_text(json.dumps(document))
    return plan_files.load(path)


def test_what_is_written_is_planned_again(work, found, path):
    again = plan_files.planned_by(work, plan_files.load(path))

    assert found.schedule.recomputed
    assert again.plan == found.plan
    assert again.schedule == found.schedule
    assert gt.plan(write(work, again), kernels="numpy").peak == found.plan.peak


def test_the_file_holds_what_was_proven(found, path):
    document = json.loads(path.read_text())

    assert document["schema_version"] == 1
    assert document["peak_bytes"] == found.plan.peak
    assert document["proof"]["extra_work"] == found.proof.extra
    assert document["proof"]["bound_work"] <= document["proof"]["extra_work"]
    assert len(document["order"]) == len(found.schedule.order)


def test_a_plan_keeps_its_proof(work, found, path):
    again = plan_files.planned_by(work, plan_files.load(path))

    assert again.proof == found.proof
    assert again.notes[1:] == lines(found)


def test_a_plan_that_the_clock_cut_short_stays_so_when_it_is_written_again(work, found, tmp_path):
    cut = dataclasses.replace(found, proof=dataclasses.replace(found.proof, cut_short=True))
    plan_files.save(work, cut, tmp_path / "cut.json")
    read = plan_files.planned_by(work, plan_files.load(tmp_path / "cut.json"))
    plan_files.save(work, read, tmp_path / "again.json")
    again = plan_files.planned_by(work, plan_files.load(tmp_path / "again.json"))

    assert again.proof.cut_short
    assert (tmp_path / "cut.json").read_bytes() == (tmp_path / "again.json").read_bytes()


def test_a_plan_without_a_search_has_no_proof(work, tmp_path):
    plan_files.save(work, strategies.sqrt(work), tmp_path / "p.json")

    assert plan_files.planned_by(work, plan_files.load(tmp_path / "p.json")).proof is None


def test_the_same_plan_has_the_same_bytes(found, path, tmp_path):
    plan_files.save(workload(made()), found, tmp_path / "again.json")

    assert path.read_bytes() == (tmp_path / "again.json").read_bytes()


def test_sizes_given_later_are_part_of_the_plan(tmp_path):
    open_ = made("batch")
    work = workload(open_, {"batch": 64})
    plan_files.save(work, strategies.sqrt(work), tmp_path / "p.json")
    file = plan_files.load(tmp_path / "p.json")

    assert file.dims == {"batch": 64}
    with pytest.raises(UsageError, match="the plan is for batch=64, here it is 32"):
        plan_files.planned_by(workload(open_, {"batch": 32}), file)


def test_the_plan_of_another_model_names_a_node_that_differs(path):
    with pytest.raises(UsageError, match="of another model: it does not run 'MatMul_3'"):
        plan_files.planned_by(workload(made(layers=4)), plan_files.load(path))


def test_sizes_that_the_file_cannot_name_show_in_the_peak(path):
    with pytest.raises(UsageError, match=r"the plan says a peak of .* other sizes"):
        plan_files.planned_by(workload(made("128")), plan_files.load(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": lambda o: [n for n in o if n != o[0]]}, "never runs"),
        ({"order": lambda o: o[::-1]}, "which is computed later"),
        ({"order": lambda o: [*o, "m00"]}, "the model has no node 'm00'"),
        ({"order": lambda o: o * 99}, "too many"),
        ({"peak_bytes": lambda p: p - 64}, "the plan says a peak of"),
        ({"proof": lambda p: p | {"extra_work": p["extra_work"] + 1}}, "proof is of something el"),
        ({"proof": lambda p: p | {"total_work": 1}}, "its proof is of something else"),
        ({"model": lambda _: "0" * 64}, "its nodes read or write other values"),
    ],
)
def test_a_plan_that_cannot_run_is_refused_in_one_line(work, path, changes, message):
    with pytest.raises(UsageError, match=message) as caught:
        plan_files.planned_by(work, changed(path, **changes))

    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"order": lambda _: "m0"},
        {"order": lambda _: [1]},
        {"order": lambda _: {}},
        {"peak_bytes": lambda _: 1e300},
        {"peak_bytes": lambda _: None},
        {"dims": lambda _: {"batch": "8"}},
        {"dims": lambda _: [8]},
        {"name": lambda _: 7},
        {"model": lambda _: []},
        {"proof": lambda _: []},
        {"proof": lambda _: {"cut_short": True}},
    ],
)
def test_wrong_types_are_no_plan(path, changes):
    with pytest.raises(UsageError, match="is no plan"):
        changed(path, **changes)


def test_what_draws_at_random_runs_once(work, found, path):
    again = work.program.steps[found.schedule.recomputed[0]]
    steps = [dataclasses.replace(s, recomputable=s.name != again.name) for s in work.program.steps]
    random = dataclasses.replace(
        work, program=dataclasses.replace(work.program, steps=tuple(steps))
    )

    with pytest.raises(UsageError, match=f"node {again.name!r} runs twice"):
        plan_files.planned_by(random, plan_files.load(path))
