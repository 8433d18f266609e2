"""Plans for native kernels: groups are decided on, copied and named as wholes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import build, swept
from elementwise_networks import HEADER, elementwise_network
from image_networks import image_network
from native_calls import FOUND, needs_library, threads

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.exec.run import execute, planned
from gradtool.graph.metadata import GROUP, MIRROR
from gradtool.graph.training_info import TrainingInfo
from gradtool.native import SLOTS, library
from gradtool.ops.elementwise.native import GROUP as GROUPED
from gradtool.planning.recompute.policy import POLICIES
from gradtool.workloads import plan_files
from gradtool.workloads.groups import decided, spread
from gradtool.workloads.plans import workload, write
from gradtool.workloads.run_options import RunOptions
from gradtool.workloads.strategies import STRATEGIES

QUICK = ("keep", "reorder", "mirror", "sqrt")
OPTIMIZERS = ("none", "adam", "momentum", "adagrad")


def graph_of(seed):
    """A random training graph: of elementwise operators, or of images."""
    if seed % 2:
        return gt.grad(gt.load(elementwise_network(seed)), input_grad=["x"])
    optimizer = OPTIMIZERS[seed // 2 % 4]
    return gt.grad(gt.load(image_network(seed)), train_mode=seed % 4 > 0, optimizer=optimizer)


def work_of(graph, kernels="native"):
    return workload(graph.model, {}, kernels)


def results(model, arrays, kernels):
    done = execute(model, dict(arrays), RunOptions(kernels=kernels, measure=True, check_arena=True))
    return done, {
        name: np.asarray(a).tobytes() for name, a in (done.gradients | done.outputs).items()
    }


def check_plans(seed, strategies, folder):
    """A plan says what its model takes, before and after it is saved; its file is the same plan.

    All of them give the same bits.
    """
    graph, kernels = graph_of(seed), ("native", "exact")[seed // 2 % 2]
    work = work_of(graph, kernels)
    arrays = gt.api.fed(graph.model, "random", seed)[1]
    bits = results(graph.model, arrays, kernels)[1] if FOUND else {}
    for name in strategies:
        found = STRATEGIES[name](work)
        model = write(work, found)
        gt.save(model, folder / f"{name}.onnx")
        for made in (model, gt.load(folder / f"{name}.onnx")):
            again = planned(made, {}, kernels)
            assert again.peak == found.plan.peak, name
            ours, theirs = ([(s.op, s.is_native, s.workspace) for s in plan.program.steps]
                            for plan in (again, found.plan))  # fmt: skip
            assert ours == theirs, name
        if FOUND:
            done, ours = results(made, arrays, kernels)
            assert done.measurement.planned == found.plan.peak >= done.measurement.high_water
            assert ours == bits, name
        plan_files.save(work, found, folder / f"{name}.json")
        again = plan_files.planned_by(work, plan_files.load(folder / f"{name}.json"))
        assert again.schedule.order == found.schedule.order


@pytest.mark.parametrize("seed", swept(6, 1))
def test_plans_are_those_of_their_models_and_files(seed, tmp_path):
    check_plans(seed, STRATEGIES if seed % 2 else QUICK, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_every_plan_is_that_of_its_model_and_file(seed, tmp_path):
    check_plans(seed, STRATEGIES, tmp_path)


def net():
    """Of eight layers, each with a group of two nodes in forward."""
    lines = ["h0 = Identity (x)"]
    for i in range(8):
        lines += [f"a{i} = Mul (h{i}, w)", f"b{i} = Tanh (a{i})", f"h{i + 1} = Softmax (b{i})"]
    lines += ["loss = ReduceSum <keepdims = 0> (h8)"]
    text = "net (float[64, 256] x, float[256] w) => (float loss) {\n" + "\n".join(lines) + "\n}"
    return gt.grad(gt.load(build(text, HEADER, w=np.ones(256, np.float32))))


def test_a_clone_copies_a_whole_group():
    work = work_of(net())
    found = STRATEGIES["sqrt"](work)
    again = [s for s in found.plan.program.steps if s.stage == "recompute" and s.op == GROUPED]
    model = write(work, found)
    nodes = {node.name: node for node in model.graph}

    assert again
    for step in again:
        assert step.nodes[-1] == step.name
        assert len({nodes[name].metadata_props[GROUP] for name in step.nodes}) == 1
        assert all(nodes[name].metadata_props["gradtool.source"] for name in step.nodes)
    info = TrainingInfo.of(model)
    assert info.plan is not None
    assert info.kernels == info.plan["kernels"]


def test_a_plan_for_numpy_forgets_groups():
    model = write((work := work_of(net())), STRATEGIES["sqrt"](work))
    other = workload(model, {})
    again = write(other, STRATEGIES["keep"](other))

    assert GROUP in model.metadata_props
    assert GROUP not in again.metadata_props
    assert not any(GROUP in node.metadata_props for node in again.graph)


def test_a_group_is_decided_on_as_one_and_the_mark_stands_on_all_of_its_nodes():
    work = work_of(net())
    groups = [step for step in work.program.steps if step.nodes and step.stage == "forward"]
    decision = decided(work, POLICIES["mirror"])
    model = write(work, STRATEGIES["mirror"](work))
    marks = {n.name: n.metadata_props[MIRROR] for n in model.graph if MIRROR in n.metadata_props}

    assert groups
    for step in groups:
        assert step.name in decision.marks
        assert not set(step.nodes[:-1]) & decision.marks.keys()
        assert len({marks[name] for name in step.nodes}) == 1


def test_a_group_runs_once_if_one_of_its_nodes_does():
    work = work_of(net())
    group = next(step for step in work.program.steps if step.nodes and step.stage == "forward")
    for name in group.nodes:
        assert not decided(work, POLICIES["mirror"], keep=[name]).marks[group.name]
        other = decided(work, lambda step, name=name: step.name != name)
        assert not other.marks[group.name]
    every = decided(work, lambda _: False, drop=group.nodes)
    assert [c.why.name for c in every.choices if c.step == group.name] != ["POLICY"]


def test_a_schedule_of_groups_names_their_nodes_in_order():
    work = work_of(net())
    found = STRATEGIES["keep"](work)
    names = [work.apart.steps[n].name for n in spread(work, found.schedule).order]

    assert sorted(names) == sorted(step.name for step in work.apart.steps)
    for step in work.program.steps:
        start = names.index(step.names[0])
        assert tuple(names[start : start + len(step.names)]) == step.names


def test_a_plan_that_parts_a_group_is_refused(tmp_path):
    work = work_of(net())
    plan_files.save(work, STRATEGIES["keep"](work), tmp_path / "p.json")
    document = json.loads((tmp_path / "p.json").read_text())
    group = next(step for step in work.program.steps if step.nodes)
    order = [name for name in document["order"] if name != group.nodes[0]]
    document["order"] = [group.nodes[0], *order]
    if tuple(document["order"][: len(group.nodes)]) == group.nodes:
        document["order"] = [group.nodes[0], order[-1], *order[:-1]]
    (tmp_path / "p.json").write_text(json.dumps(document))

    with pytest.raises(UsageError, match="run as one on native kernels"):
        plan_files.planned_by(work, plan_files.load(tmp_path / "p.json"))


@pytest.mark.parametrize(("made", "used"), [("native", "numpy"), ("numpy", "native"),
                                            ("native", "exact")])  # fmt: skip
def test_a_plan_for_other_kernels_is_refused(tmp_path, made, used):
    work = work_of(net(), made)
    plan_files.save(work, STRATEGIES["keep"](work), tmp_path / "p.json")

    with pytest.raises(UsageError, match=r"the plan is for .*, here it is for .*: say --kernels"):
        plan_files.planned_by(work_of(net(), used), plan_files.load(tmp_path / "p.json"))


def test_kernels_that_there_are_not_are_no_plan(tmp_path):
    work = work_of(net())
    plan_files.save(work, STRATEGIES["keep"](work), tmp_path / "p.json")
    document = json.loads((tmp_path / "p.json").read_text()) | {"kernels": "magic"}
    (tmp_path / "p.json").write_text(json.dumps(document))

    with pytest.raises(UsageError, match="its kernels are none of numpy, native, exact"):
        plan_files.load(tmp_path / "p.json")


@pytest.mark.exhaustive
def test_a_value_within_a_group_is_no_checkpoint_and_is_not_explained():
    graph = net()
    work = work_of(graph)
    inside = {work.apart.values[v].name for s in work.apart.steps for v in s.writes} - {
        value.name for value in work.program.values
    }

    assert inside
    for name in sorted(inside):
        with pytest.raises(UsageError, match=f"'{name}' is never written"):
            gt.recompute(graph, gt.Checkpoints([name]), kernels="native")
        with pytest.raises(UsageError, match=f"'{name}' is never written"):
            gt.api.explain(graph, name, kernels="native")
        gt.api.explain(graph, name, kernels="numpy")


def test_a_plan_is_the_same_where_the_library_is_not(monkeypatch):
    graph = graph_of(2)
    here = work_of(graph).kept

    def absent():
        raise library.Unavailable("not here")

    monkeypatch.setattr(library, "load", absent)
    monkeypatch.setattr(library, "is_available", lambda: False)
    assert work_of(graph).kept.peak == here.peak
    assert [s.workspace for s in work_of(graph).program.steps] == [
        s.workspace for s in here.program.steps
    ]


@needs_library
def test_more_threads_than_slots_take_no_more_bytes():
    graph = graph_of(4)
    arrays = gt.api.fed(graph.model, "random", 0)[1]
    found = {}
    for count in (1, SLOTS, 4 * SLOTS):
        with threads(count):
            options = RunOptions(kernels="native", measure=True, check_arena=True)
            done = execute(graph.model, dict(arrays), options)
        assert done.measurement.high_water <= done.plan.peak == found.setdefault(1, done).plan.peak
        assert done.measurement.outside - done.measurement.dynamic < done.plan.peak // 100 + 2**18
        found[count] = done
    for name, array in found[1].outputs.items():
        assert found[4 * SLOTS].outputs[name].tobytes() == array.tobytes()
