"""A program that follows from a neighbour's is the one that the model has by itself."""

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from conftest import build

import gradtool as gt
from gradtool.errors import GradtoolError
from gradtool.exec.binding import held_bytes
from gradtool.planning.no_recompute import no_recompute, resized
from gradtool.program import unpriced
from gradtool.program.bind_dims import bound
from gradtool.program.flatten import flatten, flattened
from gradtool.program.resize import Resizing, is_same

SAMPLES = Path(__file__).parents[2] / "samples"
SIZES = [2, 3, 4, 5, 8, 16, 17, 32, 64, 100]

RANGES = """net (float[batch, length, 4] x) => (float[batch, length, 4] y) {
    whole = Shape (x)
    long = Gather (whole, one)
    turns = Range (nought, long, step)
    places = Gather (table, turns)
    s = Add (x, places)
    h = MatMul (s, w)
    g = Gelu (h)
    flat = Reshape (g, rows)
    n = LayerNormalization (flat, gain)
    y = Reshape (n, whole)
}"""


def normal(*shape):
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def ranges():
    """Places in a table, of as many rows as the longest sequence may have."""
    return gt.load(
        build(
            RANGES,
            table=normal(40, 4),
            w=normal(4, 4),
            gain=normal(4),
            one=np.int64(1),
            nought=np.int64(0),
            step=np.int64(1),
            rows=np.array([-1, 4]),
        )
    )


def sample(name):
    return gt.load(SAMPLES / f"{name}.onnx")


def training(name):
    model = ranges() if name == "ranges" else sample(name)
    return gt.grad(model, optimizer="adamw").model


def form_of(model, dims, kernels):
    flat, program = flattened(bound(model, dims), dims, kernels=kernels)
    return Resizing.of(model, flat, program, dims, kernels)


def grouped(program):
    """By step, the first like it."""
    firsts = {}
    return [firsts.setdefault(id(s), i) for i, s in enumerate(program.signatures)]


@pytest.mark.parametrize("kernels", ["numpy", "exact"])
@pytest.mark.parametrize("name", ["lstm", "transformer", "cnn", "ranges"])
def test_it_is_the_program_that_the_model_has_by_itself(name, kernels):
    model = training(name)
    others = {"length": 11} if name == "ranges" else {}
    form = form_of(model, {"batch": 7, **others}, kernels)
    plan = no_recompute(form.program)
    answered = 0
    for size in SIZES:
        dims = {"batch": size, **dict.fromkeys(others, size + 1)}
        try:
            alone = unpriced(flatten(bound(model, dims), dims=dims, kernels=kernels))
        except GradtoolError as error:
            alone = type(error)
        try:
            found = form.at(dims)
        except GradtoolError as error:
            found = type(error)
        if found is None:
            continue
        answered += 1
        if isinstance(alone, type):
            assert found is alone
            continue
        assert is_same(found.program, alone)
        assert grouped(found.program) == grouped(alone)
        if found.is_alike:
            assert resized(plan, found.program) == no_recompute(found.program)
    assert answered >= (3 if name == "ranges" else len(SIZES) - 3)


@pytest.mark.parametrize("size", [0, 1])
def test_sizes_of_no_and_of_one_are_answered_by_the_model_alone(size):
    assert form_of(training("lstm"), {"batch": 6}, "numpy").at({"batch": size}) is None


@pytest.mark.parametrize("order", [(5, 9, 30, 9), (30, 9, 1, 5)])
def test_bits_do_not_depend_on_the_sizes_that_came_before(order, monkeypatch):
    model = training("transformer")
    rng = np.random.default_rng(3)
    batches = [{k: rng.integers(0, 256, (n, 32)) for k in ("tokens", "labels")} for n in order]

    def stepped():
        with gt.Session(model) as session:
            losses = [session.step(batch).loss for batch in batches]
            return losses, session.values(), [plan.peak for plan in session.plans]

    losses, values, peaks = stepped()
    monkeypatch.setattr(Resizing, "of", classmethod(lambda *_: None))
    expected, weights, alone = stepped()

    assert losses == expected
    assert peaks == alone
    for name, value in values.items():
        np.testing.assert_array_equal(value, weights[name])


def test_plans_of_a_session_follow_from_one():
    followed = set()
    with gt.Session(training("lstm")) as session:
        for size in (6, 7, 8, 9):
            session.step({k: np.zeros((24, size), np.int64) for k in ("tokens", "labels")})
            followed |= {id(form) for form, _ in session._train._forms}
        peaks = [plan.peak for plan in session.plans]

        assert len(followed) == 1
        assert session.arena_bytes == max(peaks)


@pytest.mark.parametrize("name", ["lstm", "transformer", "cnn"])
def test_a_plan_takes_no_more_of_the_host_than_is_reckoned(name):
    model = training(name)
    inputs = [v for v in model.graph.inputs if len(v.shape) and not v.is_initializer()]

    def batch(size):
        return {
            v.name: np.zeros([d if isinstance(d, int) else size for d in v.shape], v.dtype.numpy())
            for v in inputs
        }

    with gt.Session(model) as session:
        session.step(batch(20))
        session.step(batch(19))
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for size in range(9, 17):
                session.step(batch(size))
            gc.collect()
            taken = (tracemalloc.get_traced_memory()[0] - before) / 8
        finally:
            tracemalloc.stop()
        assert taken <= held_bytes(session.plans[0])
