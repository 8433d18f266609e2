"""Pools at their edges: NaNs, windows that don't fit, half precision."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import floats, parse, stock

import gradtool as gt

KINDS = ("MaxPool", "AveragePool", "LpPool")


def gradient(text: str, x: np.ndarray) -> tuple[gt.TrainingGraph, np.ndarray]:
    training = gt.grad(parse(text), loss="sum", wrt=["x"])
    return training, gt.run(training, {"x": x}).gradients["x"]


@pytest.mark.extra
@pytest.mark.parametrize("size", ["6, 6", "h, w"])
def test_the_gradient_goes_to_the_nan_of_a_window_as_in_pytorch(size):
    torch = pytest.importorskip("torch")
    x = floats(2, 3, 6, 6)
    x[0, 1, 1, 1] = x[1, 0, 2, 3] = x[1, 0, 3, 3] = np.nan
    _, found = gradient(
        f"""g (float[2, 3, {size}] x) => (float[2, 3, o, p] y) {{
            y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)
        }}""",
        x,
    )
    leaf = torch.tensor(x, requires_grad=True)
    torch.nn.functional.max_pool2d(leaf, 3, 2, 1).sum().backward()

    np.testing.assert_array_equal(found, leaf.grad.numpy())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 2, 2, 2), (0, 2, 2, 2), (1, 0, 4, 4), (1, 2, 2, 4)])
def test_an_empty_result_has_gradients_of_zero(kind, shape):
    _, found = gradient(
        f"""g (float[{", ".join(map(str, shape))}] x) => (float[n, c, o, p] y) {{
            y = {kind} <kernel_shape = [3, 3]> (x)
        }}""",
        floats(*shape),
    )

    np.testing.assert_array_equal(found, np.zeros(shape, np.float32))


@pytest.mark.parametrize("size", ["8, 8", "h, w"])
def test_stock_onnxruntime_runs_max_pooling_in_half_precision(size):
    pytest.importorskip("onnxruntime")
    x = floats(1, 2, 8, 8).astype(np.float16)
    training, found = gradient(
        f"""g (float16[1, 2, {size}] x) => (float16[1, 2, o, p] y) {{
            y = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (x)
        }}""",
        x,
    )
    theirs = stock(training.model, x=x)[training.gradients["x"]]

    np.testing.assert_array_equal(theirs, found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kernel_much_larger_than_the_image_costs_no_more_than_the_image(kind):
    half = 2**30
    model = parse(
        f"""g (float[1, 1, 3, 4] x) => (float[1, 1, o, p] y) {{
            y = {kind} <kernel_shape = [{2 * half - 1}, {half}],
                        pads = [{half}, 0, {half}, {half - 1}]> (x)
        }}"""
    )
    found = gt.run(model, {"x": floats(1, 1, 3, 4)}).outputs["y"]

    assert found.shape == (1, 1, 5, 4)


def test_a_window_too_large_for_a_kernel_of_ones_has_no_gradient():
    text = """g (float[1, 1, 3] x) => (float[1, 1, o] y) {
        y = AveragePool <kernel_shape = [1073741824], pads = [536870912, 536870912]> (x)
    }"""
    with pytest.raises(gt.NotDifferentiable, match="window has more than 16777216 elements"):
        gradient(text, floats(1, 1, 3))
