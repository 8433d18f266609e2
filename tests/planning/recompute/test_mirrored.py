"""A mirror decision applied: what it costs, what it saves, and that no bit changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import trials
from graphs import parse
from hypothesis import given, settings
from programs import program
from training_programs import backward_from, chain, run, training_programs

import gradtool as gt
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.parameters import parameters_of
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.recompute.late_clones import late
from gradtool.planning.recompute.mirror import decide
from gradtool.planning.recompute.mirrored import mirrored
from gradtool.planning.recompute.policy import POLICIES
from gradtool.planning.schedule import replay
from gradtool.planning.simulate import Simulator
from gradtool.program.flatten import flatten

SAMPLES = Path(__file__).resolve().parents[3] / "samples"
EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
MIRROR = POLICIES["mirror"]


def step(model, made, feeds):
    """The bytes of the outputs of a program of a model."""
    executor = Executor(no_recompute(made), open_device("cpu"), parameters_of(model))
    for value, array in feeds.items():
        executor.set_input(value, array)
    executor.step()
    return {value: array.tobytes() for value, array in executor.outputs().items()}


def test_the_sines_of_a_chain_are_mirrored_all_but_the_last():
    """Backward starts with the last one: to compute that again would cost and free nothing."""
    made = chain(4)
    decision = decide(made, MIRROR)
    result = mirrored(made, decision)

    assert result.decided == 4
    assert result.applied == ("h6", "h4", "h2")
    assert (result.outcome.keep_peak, result.outcome.peak) == (640, 448)
    assert Simulator(made).peak(result.outcome.schedule.order) == 448


def test_clones_are_called_mirror():
    made = chain(3)
    result = mirrored(made, decide(made, MIRROR))
    clones = [s for s in replay(made, result.outcome.schedule).steps if s.stage == "recompute"]

    assert [(s.name, s.source) for s in clones] == [("h4_mirror", "h4"), ("h2_mirror", "h2")]


def test_a_decision_that_lowers_no_peak_is_not_applied():
    """MXNet's five sums: what is mirrored are outputs, which stay anyway."""
    steps = [f"s{i} = Add x r{i}" for i in range(5)] + [f"o{i} = Tanh s{i}" for i in range(5)]
    steps += [f"g{i} = Mul o{i} s{i}" for i in range(5)]
    ends = " ".join(f"o{i} g{i}" for i in range(5))
    rows = " ".join(f"r{i}" for i in range(5))
    sizes = {"x": 80, **{f"{name}{i}": 80 for name in "sog" for i in range(5)}}
    made = backward_from(program(*steps, outputs=ends, inputs=f"x {rows}", sizes=sizes), 10)
    result = mirrored(made, decide(made, MIRROR))

    assert result.decided == 10
    assert result.applied == ()
    assert result.outcome.peak == result.outcome.keep_peak


@settings(max_examples=trials(100), **EXAMPLES)
@given(training_programs(runnable=True))
def test_a_mirrored_program_computes_the_same_bits_at_the_peak_that_was_planned(drawn):
    for policy in POLICIES.values():
        result = mirrored(drawn, decide(drawn, policy)).outcome
        after = replay(drawn, result.schedule)
        with np.errstate(all="ignore"):
            assert run(after) == run(drawn)
        assert no_recompute(after).peak_live == result.peak <= no_recompute(drawn).peak_live
        assert all(drawn.steps[s].recomputable for s in result.schedule.recomputed)


@pytest.mark.parametrize("name", ["cnn", "transformer", "lstm"])
def test_samples_are_mirrored_bit_for_bit(name):
    model = gt.grad(gt.load(SAMPLES / f"{name}.onnx", dims={"batch": 8})).model
    feeds = gt.api.read_inputs(model, "random", seed=1)
    before = flatten(model)
    result = mirrored(before, decide(flatten(model, views=False), MIRROR))
    after = replay(before, result.outcome.schedule)

    assert bool(result.applied) == result.outcome.is_better
    assert no_recompute(after).peak_live == result.outcome.peak <= result.outcome.keep_peak
    assert step(model, after, feeds) == step(model, before, feeds)


CONTROL = """g (float[6, 8] x, float[8, 8] v, float[8, 8] w, bool c) => (y) {
    e = Sin (x) p = MatMul (e, v) s = Sin (p)
    z = If (c) <then_branch = t () => (a) { q = Sin (s) a = MatMul (q, w) },
                else_branch = u () => (b) { b = MatMul (s, w) }>
    r = Sin (z)
    y = Scan <num_scan_inputs = 1, body = body (float[8] row) => (float[8] out) {
        out = Sin (row)
    }> (r)
}"""


@pytest.mark.parametrize("choice", [True, False])
def test_a_graph_with_control_flow_is_mirrored_bit_for_bit(choice):
    """If and Scan are one step each; what they read inside is kept or computed again for them."""
    model = gt.grad(parse(CONTROL, "v w"), loss="sum", input_grad=["x"]).model
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
    feeds = {"x": x, "c": np.array(choice)}
    before = flatten(model)
    decision = decide(flatten(model, views=False), MIRROR)
    numbers = {step.name: i for i, step in enumerate(before.steps)}
    everything = [numbers[n] for n, yes in decision.marks.items() if yes and n in numbers]
    after = replay(before, late(before, dict.fromkeys(everything, "_mirror")))

    assert {"If", "Scan"} <= {c.op for c in decision.choices if not c.mirrored}
    assert any(s.stage == "recompute" for s in after.steps)
    assert step(model, after, feeds) == step(model, before, feeds)
