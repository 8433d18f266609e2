"""Steps in pieces as large as for a device, run here: planned as such, the same to rounding."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import parse

import gradtool as gt
from gradtool.api import model_of
from gradtool.errors import DeviceError, GradtoolError
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.measure import check_arena, measure
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import planned
from gradtool.operators.block_size import CACHE, DEVICE, at_a_time, grain
from gradtool.ops.shared.bounds import Doubts, within
from gradtool.workloads.plans import workload
from gradtool.workloads.strategies import STRATEGIES

# ------------------------------------------------------------------------------------- pieces


def test_pieces_grow_only_within():
    assert at_a_time(5) == 5
    with grain(7):
        assert (at_a_time(5), at_a_time(5, 20), at_a_time(50, 20)) == (35, 20, 50)
    with pytest.raises(ZeroDivisionError), grain(7):
        raise ZeroDivisionError
    assert at_a_time(5) == 5


LARGE = {
    "norms": """g (float[64, 512, 40] x, float[40] w, float[40] b) => (y) {
        n = LayerNormalization (x, w, b) g = Gelu (n) s = Softmax (g) y = Mul (s, x)
    }""",
    "images": """g (float[6, 8, 60, 60] x, float[16, 8, 3, 3] w, float[16] b, float[16] c) => (y) {
        z = Conv <pads = [1, 1, 1, 1]> (x, w)
        n, u, v = BatchNormalization <training_mode = 1> (z, b, c, b, c)
        r = Relu (n) p = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (r)
        a = AveragePool <kernel_shape = [2, 2]> (p) y = HardSwish (a)
    }""",
    "channels": """g (float[2, 64, 40, 40] x, float[64, 1, 3, 3] w) => (y) {
        y = Conv <group = 64, pads = [1, 1, 1, 1]> (x, w)
    }""",
    "labels": """g (float[3000, 30] w, int64[3000] t) => (y) {
        y = SoftmaxCrossEntropyLoss (w, t)
    }""",
    "rows": """g (float[50, 40] w, int64[30, 300] i) => (y) { e = Gather (w, i) y = Tanh (e) }""",
    "chosen": """g (float[900, 100] w) => (y) <int64[1] k = {7}> { y, i = TopK (w, k) }""",
}


def bound_to(training, kernels):
    model = model_of(training)
    plan = planned(model, {}, kernels)
    executor = Executor(plan, open_device("cpu"), parameters_of(model))
    for name, array in gt.api.read_inputs(model, "random").items():
        executor.set_input(name, array)
    return executor


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", LARGE)
def test_gradients_are_those_of_small_pieces(name):
    weights = "w b c" if name == "images" else "w b" if name == "norms" else "w"
    training = gt.grad(parse(LARGE[name], weights), loss="mean:y")
    small, large = (bound_to(training, kernels) for kernels in ("numpy", "cupy"))
    with np.errstate(all="ignore"):
        small.step()
        large.step()
        found = measure(large, 1, copy=False)
        check_arena(large)

    assert (small.program.grain, large.program.grain) == (CACHE, DEVICE)
    assert found.high_water <= found.planned
    assert found.outside <= found.planned // 100 + 2**18 + large.plan.scratch
    for key, gradient in small.gradients().items():
        most = np.abs(gradient).max()
        np.testing.assert_allclose(large.gradients()[key], gradient, rtol=1e-3, atol=1e-4 * most)


def test_a_plan_says_what_it_is_for():
    training = gt.grad(parse(LARGE["norms"], "w b"), loss="mean:y")
    work = workload(training.model, kernels="cupy")
    found = {name: STRATEGIES[name](work).plan for name in ("keep", "mirror", "optimal")}

    assert {plan.program.kernels for plan in found.values()} == {"cupy"}
    assert found["keep"].peak == gt.plan(training, kernels="cupy").peak
    assert found["keep"].peak > gt.plan(training).peak
    assert found["optimal"].peak <= found["keep"].peak


def test_kernels_of_a_device_run_on_no_other():
    training = gt.grad(parse("g (float[3] w) => (y) { y = Tanh (w) }", "w"), loss="sum:y")

    with pytest.raises(DeviceError, match="CuPy's kernels run on a CUDA device, not on cpu"):
        gt.run(training, {}, kernels="cupy")
    with pytest.raises(DeviceError, match="CuPy's kernels run on a CUDA device, not on cpu"):
        gt.Session(training, kernels="cupy")


# --------------------------------------------------------------------------------------- doubts


class Behind:
    """An array library that answers, later, whether something is out of bounds."""

    @staticmethod
    def ReductionKernel(*_):
        return lambda array, low, high: bool(((array < low) | (array >= high)).any())


def test_what_a_device_finds_comes_up_later_and_once():
    xp, doubts = Behind(), Doubts()
    for step, indices in enumerate(([0, 1], [0, 9], [-1], [])):
        with doubts.of(step):
            within(xp, np.array(indices, int), 0, 5, lambda: IndexError("far"))
    found = doubts.settled()

    assert found is not None
    assert (str(found[0]), found[1]) == ("far", 1)
    assert doubts.settled() is None


def test_without_a_step_it_comes_up_at_once():
    with pytest.raises(IndexError, match="far"):
        within(Behind(), np.array([7]), 0, 5, lambda: IndexError("far"))


FAR = "g (float[5, 2] w, int64[3] i) => (y) { e = Gather (w, i) y = Tanh (e) }"


def test_nothing_is_updated_by_what_is_doubted():
    """As on a device: the indices are looked at after the steps that read them."""
    training = gt.grad(parse(FAR, "w"), loss="sum:y", optimizer="sgd")
    executor = bound_to(training, "cupy")
    executor.set_input("i", np.array([0, 4, 1]))
    before = {n: executor.value(v).copy() for n, v in named(executor, "parameter").items()}
    doubts = executor._doubts
    assert doubts is not None
    first = next(i for i, s in enumerate(executor.program.steps) if s.stage == "update")
    read = next(i for i, s in enumerate(executor.program.steps) if s.op == "Gather")
    with doubts.of(read):
        doubts.add(np.array(True), IndexError("far"))
    with pytest.raises(GradtoolError, match=r"Gather node .*far"):
        executor.step()

    for name, value in named(executor, "parameter").items():
        assert executor.value(value).tobytes() == before[name].tobytes()
    executor.step()
    assert first > read


def named(executor, kind):
    values = executor.program.values
    return {values[v].name: v for v in range(len(values)) if values[v].kind == kind}
