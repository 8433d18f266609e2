"""Every way to plan: none takes more than keeping everything, and each says what it did."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx_ir as ir
import pytest
from deep import deep
from graphs import parse

import gradtool as gt
from gradtool import shapes
from gradtool.errors import UsageError
from gradtool.planning.recompute.policy import POLICIES
from gradtool.planning.schedule import Schedule
from gradtool.workloads import strategies
from gradtool.workloads.plans import planned, workload

SAMPLES = Path(__file__).parents[2] / "samples"


def model(batch="256", layers=3):
    made = ir.from_proto(deep(batch, layers))
    shapes.infer(made)
    return made


@pytest.fixture(scope="module")
def work():
    return workload(gt.grad(model(), loss="loss").model)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", strategies.STRATEGIES)
def test_no_strategy_takes_more_than_keeping_everything(work, name):
    found = strategies.STRATEGIES[name](work)

    assert found.name == name
    assert found.plan.peak <= work.kept.peak
    assert found.plan.peak_live <= found.plan.peak


@pytest.mark.parametrize("sample", ["cnn", "transformer", "lstm"])
def test_samples_never_take_more(sample):
    graph = gt.grad(gt.load(SAMPLES / f"{sample}.onnx", dims={"batch": 4})).model
    sized = workload(graph)

    for name in ("mirror", "sqrt", "segments"):
        assert strategies.STRATEGIES[name](sized).plan.peak <= sized.kept.peak


def test_keeping_everything_is_the_order_of_the_file(work):
    found = strategies.keep(work)

    assert found.schedule == Schedule.of(range(len(work.program.steps)))
    assert found.plan is work.kept


def test_mirror_says_what_it_decided_and_what_it_applied(work):
    found = strategies.mirror(work)

    decided = sum(found.decision.marks.values())
    assert found.notes == (f"mirror: {decided} nodes may be recomputed, 2 are",)
    assert len(found.schedule.recomputed) == 2


def test_a_decision_is_kept_where_nothing_is_applied(work):
    """Held by name everywhere: mirror decides nothing, and that is said, too."""
    found = strategies.mirror(work, keep=["s*"])

    assert found.plan.peak == work.kept.peak
    assert not any(found.decision.marks[step] for step in found.decision.marks)
    assert found.notes == ("mirror: 0 nodes may be recomputed, 0 are",)


def test_policies_differ(work):
    peaks = {name: strategies.mirror(work, policy=p).plan.peak for name, p in POLICIES.items()}

    assert max(peaks.values()) <= work.kept.peak
    assert peaks["mirror"] < work.kept.peak


def test_a_worse_plan_gives_way_to_keeping_everything(work):
    """All of forward twice before backward begins: more is alive, not less."""
    begin = next(i for i, s in enumerate(work.program.steps) if s.stage == "backward")
    order = [*range(begin), *range(begin - 1), *range(begin, len(work.program.steps))]
    worse = planned(work, "worse", Schedule.of(order), notes=["tried"])
    found = strategies.no_worse(work, worse)

    assert found.plan.peak == work.kept.peak
    assert (found.name, found.schedule) == ("worse", strategies.keep(work).schedule)


def test_checkpoints_are_held_even_where_that_saves_nothing():
    small = workload(gt.grad(model(layers=1), loss="loss").model)
    found = strategies.checkpoints(small, names=["s0"])

    assert found.schedule.recomputed
    assert found.name == "checkpoints"


def test_checkpoints_that_others_cross_are_said():
    text = """g (float[64, 8] x, float[8, 8] w) => (y) {
        a = MatMul (x, w) b = Tanh (a) c = MatMul (b, w) d = Tanh (c)
        e = Add (d, b) f = Sin (e) y = ReduceMean <keepdims = 0> (f)
    }"""
    crossed = workload(gt.grad(parse(text, "w"), loss="y").model)

    (note,) = strategies.checkpoints(crossed, names=["d"]).notes
    assert note.startswith("held beside the checkpoints: b")


def test_a_name_that_matches_nothing_is_refused(work):
    for wrong in (
        partial(strategies.mirror, keep=["zz"]),
        partial(strategies.mirror, drop=["zz"]),
        partial(strategies.checkpoints, names=["zz"]),
    ):
        with pytest.raises(UsageError, match="zz"):
            wrong(work)


def test_an_order_that_may_not_be_the_best_says_how_much_less_another_may_take(work):
    found = strategies.reorder(work)
    vars(work)["ordered"] = replace(work.ordered, bound=work.ordered.peak - 64)
    said = strategies.reorder(work).notes
    vars(work).pop("ordered")

    assert not found.notes
    assert len(said) == 1
    assert said[0].startswith("proven: no order without recompute fits in less than ")
