"""Arenas told from numbers have the buffers, and the bytes, of the plans of the same schedules."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from conftest import sampled, trials
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from programs import program
from random_graphs import assemble, recipes
from random_programs import orders, programs
from shared import SMALL

import gradtool as gt
from gradtool import io
from gradtool.planning.arena import Arenas
from gradtool.planning.liveness import lifetimes
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.plan import ALWAYS_LIVE
from gradtool.planning.schedule import Schedule, replay
from gradtool.planning.simulate import Simulator
from gradtool.program.declared import narrowed
from gradtool.program.donation import overwriting
from gradtool.workloads import plans

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "samples").glob("*.onnx"))


def expected(program, order):
    """Bytes, first and last step of the buffers of the replayed program."""
    made = narrowed(replay(program, Schedule.of(order)), program.steps)
    moving = (b for b in lifetimes(made) if b.region not in ALWAYS_LIVE)
    return [(b.bytes, b.first, b.last) for b in moving]


@settings(max_examples=trials(200), **EXAMPLES)
@given(st.data())
def test_buffers_are_those_of_the_replayed_program(data):
    made = data.draw(programs())
    order = data.draw(orders(made.steps))

    found = Arenas(Simulator(made)).buffers(order)
    assert list(zip(*found, strict=True)) == expected(made, order)


@settings(max_examples=trials(200), **EXAMPLES)
@given(programs())
def test_the_program_as_it_is_has_the_arena_of_keeping_everything(made):
    whole = Arenas(Simulator(made)).whole

    assert whole is None or whole == no_recompute(made).peak


def test_only_a_plan_tells_where_a_parameter_lies_that_is_read_after_it_was_written_over():
    made = program(
        "a = Tanh w", "b = Mul w a", "y = Exp a", outputs="b y", parameters="w", in_place=True
    )
    old, new = (next(i for i, v in enumerate(made.values) if v.name == n) for n in "wb")
    made = overwriting(dataclasses.replace(made, state=MappingProxyType({old: new})))

    found = Arenas(Simulator(made)).buffers((0, 1, 2))
    assert list(zip(*found, strict=True)) == expected(made, (0, 1, 2))
    assert Arenas(Simulator(made)).buffers((0, 1, 0, 2)) is None


def disagreements(work, random, tries):
    """The sizes and FLOPs of random schedules that are not those of their plans, and how many were
    told.
    """
    steps = work.program.steps
    end = next((i for i, step in enumerate(steps) if step.stage == "update"), len(steps))
    found, told = [], 0
    for _ in range(tries):
        order = list(range(len(steps)))
        for at in sorted(random.integers(1, end, 8).tolist(), reverse=True):
            again = int(random.integers(at))
            if steps[again].recomputable:
                order.insert(at, again)
        size = work.arenas.size(order)
        if size is not None:
            told += 1
            other = plans.planned(work, "any", Schedule.of(order))
            said = size, plans.extra_of(work, other)
            meant = other.plan.peak, plans.extra_flops(other.plan, work.kept)
            found += [(said, meant)] if said != meant else []
    return found, told


@pytest.mark.sample(4)
@pytest.mark.parametrize("optimizer", sampled(["adamw", "none", "momentum"]))
@pytest.mark.parametrize("kernels", ["numpy", "native", "exact"])
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_sizes_are_those_of_plans_of_random_schedules(path, kernels, optimizer):
    training = gt.grad(gt.load(path), optimizer=optimizer).model
    work = plans.workload(training, dict.fromkeys(io.symbols(training), 3), kernels)
    found, told = disagreements(work, np.random.default_rng(len(SAMPLES)), 6)

    assert work.arenas.whole == work.kept.peak
    assert found == []
    assert told


@pytest.mark.parametrize("kernels", ["native", "exact"])
@settings(max_examples=trials(12), phases=[Phase.generate], **EXAMPLES)
@given(recipe=recipes(most=20), seed=st.integers(0, 99))
def test_native_kernels_of_random_graphs_have_the_arenas_of_their_plans(kernels, recipe, seed):
    forward = assemble(recipe, np.float32)
    training = gt.grad(forward, loss="loss", wrt=list(recipe.leaves)).model
    found, _ = disagreements(
        plans.workload(training, kernels=kernels), np.random.default_rng(seed), 3
    )

    assert found == []


@pytest.mark.shared
@pytest.mark.parametrize("kernels", ["native", "exact"])
@pytest.mark.parametrize("name", ["lstm_lm", "mobilenetv3", "resnet18", "segformer", "vae"])
def test_models_have_the_arenas_of_their_plans(name, kernels):
    training = gt.grad(gt.load(SMALL / name / "model.onnx")).model
    found, told = disagreements(
        plans.workload(training, kernels=kernels), np.random.default_rng(0), 3
    )

    assert found == []
    assert told
