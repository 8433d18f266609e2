"""A storage has one name in tables, pages, explanations and baselines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import sampled
from hypothesis import given
from hypothesis import strategies as st
from one_name import contradicted, contradictions, disagreements, misexplained, unexplained
from random_programs import orders
from shared import SMALL
from training_programs import chain, training_programs

from gradtool import api, io
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.recompute.mirror import decide
from gradtool.planning.recompute.mirrored import mirrored
from gradtool.planning.recompute.policy import POLICIES
from gradtool.planning.schedule import Schedule, replay
from gradtool.workloads import plans, strategies

ROOT = Path(__file__).parents[2]
SAMPLES = ("cnn", "transformer", "lstm")
SEARCHED = ("min-cut", "optimal")
QUICK = tuple(name for name in strategies.STRATEGIES if name not in SEARCHED)


def problems(work, names):
    """All that is wrong with what is said of some plans of a training graph."""
    mirror = strategies.mirror(work)
    decided = {"decision": mirror.decision, "schedule": mirror.schedule}
    for name in names:
        found = strategies.STRATEGIES[name](work)
        form = plans.form_of(work, found)
        told = decided if form is work else {"schedule": found.schedule}
        yield from (f"{name}: {each}" for each in disagreements(found.plan))
        yield from (f"{name}: {each}" for each in unexplained(form.program, found.plan, **told))
    yield from misexplained(work.program, work.kept, **decided)
    yield from contradicted(work.program, **decided)


def opened(path, batch, *, is_fixed, **options):
    """The workload of a file whose open sizes are fixed when it is loaded or when it is planned."""
    model = api.load(path)
    if is_fixed:
        model = api.load(path, dims=dict.fromkeys(io.symbols(model), batch))
    training = api.grad(model, **options).model
    return plans.workload(training, dict.fromkeys(io.symbols(training), batch))


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_fixed", sampled([True, False]))
@pytest.mark.parametrize("batch", [8, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name, batch, is_fixed):
    work = opened(ROOT / "samples" / f"{name}.onnx", batch, is_fixed=is_fixed)

    assert list(problems(work, QUICK)) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimizer", [pytest.param("sgd", marks=pytest.mark.slow), "adam"])
@pytest.mark.parametrize(
    "name", ["cnn", pytest.param("transformer", marks=pytest.mark.slow), "lstm"]
)
def test_whole_steps(name, optimizer):
    """Next values of parameters and state lie over the old ones."""
    path = ROOT / "samples" / f"{name}.onnx"
    work = opened(path, 2, is_fixed=False, optimizer=optimizer)

    assert list(problems(work, QUICK)) == []


@pytest.mark.slow
@pytest.mark.parametrize("is_fixed", [True, False])
@pytest.mark.parametrize("batch", [1, 4, 8])
@pytest.mark.parametrize("name", SAMPLES)
def test_searched_plans_of_samples(name, batch, is_fixed):
    work = opened(ROOT / "samples" / f"{name}.onnx", batch, is_fixed=is_fixed)

    assert list(problems(work, SEARCHED)) == []


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["lenet", pytest.param("gpt2", marks=pytest.mark.slow), "lstm_lm", "cf_loop"]
)
def test_models_of_the_zoo(name):
    path = SMALL / name / "model.onnx"

    assert list(problems(opened(path, 2, is_fixed=False), QUICK)) == []


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    "path", sorted(SMALL.glob("*/model.onnx")), ids=lambda path: path.parent.name
)
def test_every_model_of_the_zoo(path):
    assert list(problems(opened(path, 2, is_fixed=False), QUICK)) == []


@given(training_programs(), st.data())
def test_random_programs(program, data):
    """Also in orders and with repeats that no strategy would choose."""
    decision = decide(program, POLICIES["mirror"])
    decided = {"decision": decision, "schedule": mirrored(program, decision).outcome.schedule}
    schedule = Schedule.of(data.draw(orders(program.steps)))
    plan, kept = no_recompute(replay(program, schedule)), no_recompute(program)

    assert list(disagreements(kept)) == []
    assert list(disagreements(plan)) == []
    assert list(unexplained(program, plan, **decided)) == []
    assert list(misexplained(program, kept, **decided)) == []
    assert list(contradicted(program, **decided)) == []


CONTRADICTIONS = {
    "runs again, and kept": [" computed again in backward: a; applied", " kept: b"],
    "again itself, and no point": [
        " may be computed again in backward: a; not applied, as b",
        " computing it again: it is an output: it stays to the end",
    ],
    "unread, and read by backward": [
        " read by Mul 'm' (backward, step 3)", " computing it again: backward does not read it",
    ],
    "always, and life": ["w: parameter, 4 B, always alive", " alive from step 1 to step 2; it is"],
    "read at step 9, 5 to 6": [
        " alive from step 5 to step 6; it is not alive at the peak of keeping everything (b)",
        " read by Mul 'm' (forward, step 9)",
    ],
    "it outlives its place": [
        " alive from step 5 to step 6; it is alive at the peak of keeping everything (b)",
        " its place is held from step 6 to step 9, in turn with c; reports call it c",
    ],
    "alive at the peak twice": [" it is alive at the peak", " it is not alive at the peak"],
}  # fmt: skip


@pytest.mark.parametrize("found", CONTRADICTIONS)
def test_contradictions_are_found(found):
    assert found in list(contradictions(CONTRADICTIONS[found]))


def test_other_names_are_found():
    program = chain(3)
    plan = no_recompute(program)
    (first, *_) = [b for b in plan.live(plan.peak_step) if len(b.values) > 1]
    renamed = [replace(b, name="another", called=0) if b is first else b for b in plan.buffers]
    wrong = replace(plan, buffers=tuple(renamed))

    assert any("lies there" in each for each in disagreements(wrong))
    assert any("another" in each for each in unexplained(program, wrong))
