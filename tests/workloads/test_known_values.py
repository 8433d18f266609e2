"""What is computed from constants alone is known alike by a model and by the file of its plan."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from conftest import trials
from graphs import parse
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import gradtool as gt
from gradtool.workloads import plans

EXAMPLES = {"deadline": None, "derandomize": True, "database": None, "phases": [Phase.generate]}
# Each from a vector of integers to another one of as many elements.
STEPS = (
    "{y} = Neg ({x})",
    "{y} = Add ({x}, {x})",
    "{y} = CumSum ({x}, zero)",
    "{y}a = Less (zeros, {x}) {y} = Cast <to = 7> ({y}a)",
    "{y}a = Unsqueeze ({x}, axis) {y} = Squeeze ({y}a, axis)",
    "{y}a = Concat <axis = 0> ({x}, {x}) {y} = Slice ({y}a, axis, ends)",
    "{y}a = Cast <to = 1> ({x}) {y}b = Sqrt ({y}a) {y} = Cast <to = 7> ({y}b)",
)
# From a vector of integers to something that a float vector of 5 elements is multiplied by.
ENDS = (
    "{y}a = ReduceSum <keepdims = 0> ({x}) {y} = CastLike ({y}a, {like})",
    """{y}a = ReduceMax <keepdims = 1> ({x}) {y}b = CastLike ({y}a, {like})
    {y} = Expand ({y}b, five)""",
    """{y}a = Mod ({x}, fives) {y}b = Gather ({like}, {y}a)
    {y}c = ReduceSum <keepdims = 0> ({y}b) {y} = Sin ({y}c)""",
)


@st.composite
def models(draw):
    """`loss = Σ …tanh(tanh(x · w · c₁) · c₂)…`, each `c` made of integers that the file holds."""
    size = draw(st.sampled_from([1, 5, 9, 20, 70]))
    lines, x = ["h0 = Mul (x, w)"], "h0"
    for number in range(draw(st.integers(1, 3))):
        value = "held"
        for depth, step in enumerate(draw(st.lists(st.sampled_from(STEPS), max_size=4))):
            made = f"k{number}_{depth}"
            lines.append(step.format(x=value, y=made))
            value = made
        end = draw(st.sampled_from(ENDS)).format(x=value, y=f"c{number}", like=x)
        lines += [end, f"m{number} = Mul ({x}, c{number})", f"t{number} = Tanh (m{number})"]
        x = f"t{number}"
    held = ", ".join(str(n % 7) for n in range(size))
    zeros, fives = (", ".join(str(n) for _ in range(size)) for n in (0, 5))
    return parse(f"""
        g (float[5] x) => (float loss)
        <float[5] w = {{1, 2, 3, 4, 5}}, int64[{size}] held = {{{held}}}, int64 zero = {{0}},
         int64[{size}] zeros = {{{zeros}}}, int64[{size}] fives = {{{fives}}},
         int64[1] axis = {{0}}, int64[1] ends = {{{size}}}, int64[1] five = {{5}}>
        {{ {" ".join(lines)} loss = ReduceSum <keepdims = 0> ({x}) }}
    """)


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", ["reorder", "mirror", "optimal"])
@settings(max_examples=trials(25), **EXAMPLES)
@given(model=models())
def test_a_written_plan_takes_what_was_planned(tmp_path_factory, strategy, model: ir.Model):
    training = gt.grad(model)
    planned = gt.recompute(training, strategy, kernels="numpy")
    path = tmp_path_factory.mktemp("plan") / "plan.onnx"
    gt.save(planned, path)
    loaded = gt.load(path)
    x = {"x": np.linspace(0.1, 0.5, 5, dtype=np.float32)}

    assert plans.workload(loaded).kept.peak == planned.plan.peak
    assert gt.run(loaded, x, kernels="numpy").loss == gt.run(training, x, kernels="numpy").loss
