"""Steps that run as one call of C compute what they do one by one, and say which of them failed."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import sampled
from graphs import parse
from image_networks import image_network
from native_calls import needs_library

import gradtool as gt
from gradtool.errors import GradtoolError
from gradtool.exec import call_batching
from gradtool.exec.call_batching import linked
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import sized_and_planned

pytestmark = needs_library
OPTIMIZERS = ("none", "sgd", "momentum", "adam", "adagrad")


def executor_of(model, arrays):
    plan = sized_and_planned(model, {}, kernels="native")[1]
    executor = Executor(plan, open_device("cpu"), parameters_of(model))
    for name, array in arrays.items():
        executor.set_input(name, array)
    return executor


@pytest.fixture(params=sampled(range(30), 3))
def executor(request):
    """Training steps of random networks, some with updates that read their rate each time."""
    seed = request.param
    graph = gt.grad(
        gt.load(image_network(seed)),
        train_mode=bool(seed % 2),
        optimizer=OPTIMIZERS[seed % len(OPTIMIZERS)],
    )
    return executor_of(graph.model, gt.api.fed(graph.model, "random", seed)[1])


def results(executor):
    """The bytes of all results."""
    return [executor.result(v).tobytes() for v in executor.program.outputs]


def one_by_one(executor):
    for index in range(len(executor.calls)):
        executor.call(index)


@pytest.mark.sample(4)
@pytest.mark.parametrize("most", [0, 2**16, call_batching.MOST])
def test_linked_steps_compute_what_they_do_one_by_one(executor, most, monkeypatch):
    monkeypatch.setattr(call_batching, "MOST", most)
    with np.errstate(all="ignore"):
        one_by_one(executor)
        expected = results(executor)
        for _ in range(2):
            executor.rewind()
            executor.step()
            assert results(executor) == expected


def test_a_number_is_read_whenever_steps_run(executor):
    """Inputs without axes: the rates of updates, and what else there is."""
    program = executor.program
    rates = [v for v in program.inputs if program.values[v].spec.shape == ()]
    for factor in (1, 0.5, 4):
        for v in rates:
            if executor.arrays[v].dtype == np.float32:
                executor.arrays[v][...] = 0.01 * factor
        with np.errstate(all="ignore"):
            executor.rewind()
            executor.step()
            together = results(executor)
            executor.rewind()
            one_by_one(executor)
        assert results(executor) == together


@pytest.mark.sample(3)
def test_native_steps_take_one_call_unless_they_take_long(executor, monkeypatch):
    steps = executor.program.steps
    monkeypatch.setattr(call_batching, "MOST", 10**15)
    breaks = [i for i, link in enumerate(linked(executor.calls, executor.program)) if i and link]
    numpy = sum(not step.is_native for step in steps)

    assert len(breaks) <= 2 * numpy + sum("Loss" in s.op or "Gather" in s.op for s in steps) * 2
    monkeypatch.setattr(call_batching, "MOST", 0)
    assert len(linked(executor.calls, executor.program)) >= len(steps)


@pytest.mark.parametrize("rows", range(1, 6))
@pytest.mark.parametrize("before", range(4))
def test_the_step_that_fails_between_native_ones_is_named(rows, before):
    chain = " ".join(f"[r{i}] v{i + 1} = MatMul (v{i}, w)" for i in range(before))
    model = parse(
        f"""g (float[{rows}, 4] v0, int64[2] rows, float[4, 4] w) => (loss) {{
        {chain} [wrong] y = Gather (v{before}, rows) loss = ReduceSum <keepdims = 0> (y)
        }}""",
        "w",
    )
    executor = executor_of(
        model, {"v0": np.ones((rows, 4), np.float32), "rows": np.array([0, rows])}
    )
    assert all(step.is_native for step in executor.program.steps)
    with pytest.raises(GradtoolError, match="'wrong'"):
        executor.step()
