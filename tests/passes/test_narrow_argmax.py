"""Places of maxima are kept within their planes, in a small type, and nothing else changes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from graphs import floats, gradients, lines, parse, stock

import gradtool as gt
from gradtool.shapes import infer
from gradtool.workloads import training

PLAIN = "kernel_shape = [2, 2], strides = [2, 2]"
OVERLAPPING = "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]"
ROOM = "kernel_shape = [3, 3], strides = [2, 3], ceil_mode = 1, pads = [1, 0, 1, 1]"
ATTRIBUTES = {
    "plain": PLAIN,
    "overlapping": OVERLAPPING,
    "with room at the end": ROOM,
    "same": 'kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER"',
    "column by column": f"{OVERLAPPING}, storage_order = 1",
    "dilated": "kernel_shape = [2, 3], dilations = [3, 2]",
}


def pooled(attributes: str, image: str = "9, 8", batch: str = "2") -> ir.Model:
    return parse(
        f"""g (float[{batch}, 3, {image}] x) => (y) {{
            h = Tanh (x) p = MaxPool <{attributes}> (h) y = Mul (p, p)
        }}"""
    )


def both(model: ir.Model, monkeypatch: pytest.MonkeyPatch, **given) -> list[gt.TrainingGraph]:
    """The training graph with places in a small type, and that without."""
    less = gt.grad(model, input_grad=["x"], loss="mean", **given)
    with monkeypatch.context() as patched:
        patched.setattr(training, "narrow_places", lambda *_: 0)
        return [less, gt.grad(model, input_grad=["x"], loss="mean", **given)]


def kept(made: gt.TrainingGraph) -> ir.DataType | None:
    """The type of the places that are kept for backward."""
    call = next(n for n in made.model.graph if n.op_type == "MaxPoolGrad")
    assert call.inputs[1] is not None

    return call.inputs[1].dtype


@pytest.mark.parametrize("attributes", ATTRIBUTES.values(), ids=list(ATTRIBUTES))
def test_gradients_keep_their_bits(attributes, monkeypatch):
    x = floats(2, 3, 9, 8)
    x[0, 0, :4] = 1  # elements tie

    less, more = both(pooled(attributes), monkeypatch)

    assert [kept(m) for m in (less, more)] == [ir.DataType.UINT8, ir.DataType.INT64]
    found, expected = (gradients(m, x=x) for m in (less, more))
    np.testing.assert_array_equal(found["x"], expected["x"])


@pytest.mark.parametrize("attributes", ATTRIBUTES.values(), ids=list(ATTRIBUTES))
def test_stock_onnxruntime_gives_the_same(attributes, tmp_path):
    pytest.importorskip("onnxruntime")
    x = floats(2, 3, 9, 8)
    made = gt.grad(pooled(attributes), input_grad=["x"], loss="mean")
    gt.save(made, tmp_path / "g.onnx")

    found = stock(gt.load(tmp_path / "g.onnx"), x=x)[made.gradients["x"]]

    np.testing.assert_allclose(found, gradients(made, x=x)["x"], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("16, 16", ir.DataType.UINT8), ("16, 17", ir.DataType.UINT16),
        ("256, 256", ir.DataType.UINT16), ("256, 257", ir.DataType.INT64),
        ("H, 4", ir.DataType.INT64),
    ],
)  # fmt: skip
def test_the_type_is_the_smallest_that_counts_a_plane(image, expected):
    made = gt.grad(pooled(PLAIN, image), input_grad=["x"], loss="mean")

    assert kept(made) == expected


def test_a_batch_may_be_open(monkeypatch):
    x = floats(5, 3, 9, 8)

    less, more = both(pooled(OVERLAPPING, batch="N"), monkeypatch)

    assert kept(less) == ir.DataType.UINT8
    np.testing.assert_array_equal(gradients(less, x=x)["x"], gradients(more, x=x)["x"])


def test_a_plane_of_more_windows_than_are_added_at_a_time(monkeypatch):
    model = pooled("kernel_shape = [3, 3], strides = [1, 1]", "160, 150", batch="1")
    x = floats(1, 3, 160, 150)

    less, more = both(model, monkeypatch)

    np.testing.assert_array_equal(gradients(less, x=x)["x"], gradients(more, x=x)["x"])


def test_indices_that_others_read_stay_as_they_are():
    model = parse(
        """g (float[2, 3, 9, 8] x) => (y) {
            h = Tanh (x) p, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (h)
            f = Cast <to = 1> (i) q = Mul (p, f) y = Mul (q, q)
        }"""
    )

    made = gt.grad(model, input_grad=["x"], loss="mean")

    assert kept(made) == ir.DataType.INT64
    assert "MaxPoolTraining" not in {n.op_type for n in made.model.graph}


def test_a_pooling_without_gradient_stays_as_it_is():
    model = parse(
        """g (float[2, 3, 9, 8] x, float[2, 3, 4, 4] w) => (y) {
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) q = Mul (p, w)
            y = Mul (q, q)
        }""",
        weights="w",
    )

    made = gt.grad(model, wrt=["w"], loss="mean")

    assert lines(made.model, "forward")[0] == "p = MaxPool (x)"


def test_nodes_and_values_keep_their_names():
    made = gt.grad(pooled(PLAIN), input_grad=["x"], loss="mean")
    call = next(n for n in made.model.graph if n.op_type == "MaxPoolTraining")

    assert [v.name for v in call.outputs[:1]] == ["p"]
    assert call.metadata_props["gradtool.stage"] == "forward"
    assert "storage_order" not in call.attributes


@pytest.mark.parametrize("attributes", ATTRIBUTES.values(), ids=list(ATTRIBUTES))
def test_the_shape_is_that_of_the_pooling(attributes):
    made = gt.grad(pooled(attributes), input_grad=["x"], loss="mean").model
    call = next(n for n in made.graph if n.op_type == "MaxPoolTraining")
    expected = next(n for n in pooled(attributes).graph if n.op_type == "MaxPool").outputs[0].shape
    for value in call.outputs:
        value.shape = None

    infer(made)

    assert [v.shape for v in call.outputs] == [expected, expected]


def test_a_second_order_goes_through(monkeypatch):
    x = floats(2, 3, 9, 8)

    less, more = (
        gt.grad(m.model, loss=f"sum:{m.gradients['x']}", input_grad=["x"])
        for m in both(pooled(OVERLAPPING), monkeypatch)
    )

    np.testing.assert_allclose(gradients(less, x=x)["x"], gradients(more, x=x)["x"], rtol=1e-6)
