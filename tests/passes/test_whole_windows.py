"""Pools with `ceil_mode` whose last window would begin behind the image."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from graphs import floats, parse, stock

import gradtool as gt
from gradtool.exec import verify
from gradtool.ops.composites.calls import inline

KINDS = ("MaxPool", "LpPool", "AveragePool", "AveragePool, count_include_pad = 1")
WINDOWS = {
    "all drop": ((2, 4), "kernel_shape = [1, 1], strides = [3, 3]"),
    "one drops": ((4, 6), "kernel_shape = [2, 2], strides = [4, 3]"),
    "one is cut": ((4, 6), "kernel_shape = [2, 3], strides = [4, 2]"),
    "behind the padding": ((3, 5), "kernel_shape = [3, 2], strides = [3, 2], pads = [0, 0, 2, 1]"),
    "none drops": ((5, 6), "kernel_shape = [2, 2], strides = [3, 3]"),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", WINDOWS)
def test_what_is_written_loads_and_computes_the_same(kind, window):
    pytest.importorskip("onnxruntime")
    (height, width), given = WINDOWS[window]
    op, _, more = kind.partition(", ")
    given = ", ".join(filter(None, (given, "ceil_mode = 1", more)))
    call = f"y = {op} <{given}> (x)"
    model = parse(f"g (float[1, 2, {height}, {width}] x) => (float[1, 2, o, p] y) {{ {call} }}")
    feeds = {"x": floats(1, 2, height, width)}
    expected = gt.run(model, feeds).outputs["y"]
    training = gt.grad(model, loss="sum", wrt=["x"])

    result = gt.run(training, feeds)
    verify.finite_differences(training.model, feeds, result)
    assert result.loss == pytest.approx(float(expected.sum()), rel=1e-5)
    theirs = stock(training.model, **feeds)
    name = training.gradients["x"]
    np.testing.assert_allclose(theirs[name], result.gradients["x"], rtol=1e-5, atol=1e-6)
    inline(training.model)
    onnx.checker.check_model(ir.to_proto(training.model), full_check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_windows_of_the_known_axes_are_cut_where_others_are_open(kind):
    pytest.importorskip("onnxruntime")
    op, _, more = kind.partition(", ")
    given = ", ".join(filter(None, ("kernel_shape = [2, 1], strides = [2, 3]", more)))
    model = parse(f"""g (float[1, 2, h, 8] x) => (float[1, 2, o, p] y) {{
        y = {op} <{given}, ceil_mode = 1> (x)
    }}""")
    feeds = {"x": floats(1, 2, 5, 8)}
    training = gt.grad(model, loss="sum", wrt=["x"])
    result = gt.run(training, feeds)
    verify.finite_differences(training.model, feeds, result)
    theirs = stock(training.model, **feeds)[training.gradients["x"]]

    np.testing.assert_allclose(theirs, result.gradients["x"], rtol=1e-5, atol=1e-6)
    inline(training.model)
    onnx.checker.check_model(ir.to_proto(training.model), full_check=True)


def test_open_images_keep_their_pool():
    training = gt.grad(
        parse("""g (float[1, 1, h, w] x) => (float[1, 1, o, p] y) {
            y = MaxPool <kernel_shape = [1, 1], strides = [3, 3], ceil_mode = 1> (x)
        }"""),
        loss="sum",
        wrt=["x"],
    )
    (pool,) = (n for n in training.model.graph if n.op_type == "MaxPool")

    assert pool.attributes["ceil_mode"].as_int() == 1
