import numpy as np
import pytest
from graphs import parse
from native_calls import needs_library

import gradtool as gt
from gradtool.errors import MissingData
from gradtool.exec.step_costs import step_costs

TEXT = """g (float[4, 8] x, float[8, 4] w) => (float loss) {
    h = MatMul (x, w)
    e = Exp (h)
    loss = ReduceSum <keepdims = 0> (e)
}"""
ARRAYS = {"x": np.ones((4, 8), np.float32)}


def test_every_step_of_the_plan_has_its_seconds_and_its_bytes():
    model = gt.grad(parse(TEXT, "w"), loss="loss").model

    costs = step_costs(model, ARRAYS, repeats=2)

    steps = len(costs.plan.program.steps)
    assert (len(costs.seconds), len(costs.outside)) == (steps, steps)
    assert min(costs.seconds) > 0
    assert min(costs.outside) >= 0
    assert costs.repeats == 2


@pytest.mark.parametrize("kernels", ["numpy", pytest.param("native", marks=needs_library)])
def test_the_roof_is_one_that_a_processor_may_have(kernels):
    model = gt.grad(parse(TEXT, "w"), loss="loss").model

    found = step_costs(model, ARRAYS, kernels=kernels).reach

    assert 1e8 < found.flops < 1e14
    assert 1e8 < found.bytes < 1e13


def test_a_step_that_allocates_beside_the_arena_shows_it():
    # NonZero's result depends on data, so it lies beside the arena: int64[2, 4096], 64 KiB
    text = "g (float[64, 64] x) => (int64[2, found] i) { i = NonZero (x) }"

    costs = step_costs(parse(text), {"x": np.ones((64, 64), np.float32)})

    assert max(costs.outside) >= 2 * 64 * 64 * 8


def test_an_absent_input_is_named():
    model = gt.grad(parse(TEXT, "w"), loss="loss").model

    with pytest.raises(MissingData, match="no input 'x'"):
        step_costs(model, {})
