"""Places of maxima by plain operators: MaxPool has one output, and gradients stay."""

import numpy as np
import onnx
import pytest
from conftest import sampled
from graphs import floats, parse

import gradtool as gt
from gradtool.workloads.ort_options import session

WINDOWS = [
    "kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]",
    "kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1",
    "kernel_shape=[2, 3], strides=[2, 1], dilations=[2, 1], pads=[1, 0, 0, 1], ceil_mode=1",
    'kernel_shape=[2, 2], auto_pad="SAME_LOWER"',
    "kernel_shape=[3, 2], storage_order=1",
]
SHAPES = {
    "[2, 3, 9, 7]": (2, 3, 9, 7),
    "[n, 3, h, w]": (2, 3, 9, 7),
    "[1, 1, 260, 256]": (1, 1, 260, 256),
}


@pytest.mark.parametrize("shape", sampled(SHAPES))
@pytest.mark.parametrize("window", sampled(WINDOWS))
def test_a_maximum_has_its_place_without_indices(window, shape, tmp_path):
    pytest.importorskip("onnxruntime")
    body = f"y = MaxPool <{window}> (x)"
    training = gt.grad(parse(f"g (float{shape} x) => (y) {{ {body} }}"), loss="sum", wrt=["x"])
    x = np.round(floats(*SHAPES[shape]), 1)  # with equal elements

    gt.save(training, tmp_path / "m.onnx", portable=True)

    proto = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert [len(n.output) for n in proto.graph.node if n.op_type == "MaxPool"] == [1]
    ours = gt.run(training, {"x": x}).gradients["x"]
    (theirs,) = session(str(tmp_path / "m.onnx"), {}).run(["x_grad"], {"x": x})
    again = gt.run(gt.load(tmp_path / "m.onnx"), {"x": x}).gradients["x"]
    np.testing.assert_array_equal(theirs, ours)
    np.testing.assert_array_equal(again, ours)


@pytest.mark.parametrize("window", WINDOWS[:4])
def test_a_half_saves_the_places_that_indices_are(window, tmp_path):
    pytest.importorskip("onnxruntime")
    body = f"y = MaxPool <{window}> (x)"
    text = f"g (float[2, 3, 9, 7] x) => (y) {{ {body} }}"
    halves = gt.split(gt.grad(parse(text), loss="sum", wrt=["x"]))
    x = np.round(floats(2, 3, 9, 7), 1)

    gt.save(halves.forward, tmp_path / "plain.onnx")
    gt.save(halves.forward, tmp_path / "m.onnx", portable=True)

    proto = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert [len(n.output) for n in proto.graph.node if n.op_type == "MaxPool"] == [1]
    plain, portable = (
        session(str(tmp_path / name), {}).run(list(halves.saved), {"x": x})
        for name in ("plain.onnx", "m.onnx")
    )
    for before, after in zip(plain, portable, strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


def test_indices_that_the_model_returns_stay(tmp_path):
    text = "g (float[2, 3, 6, 6] x) => (y, i) { y, i = MaxPool <kernel_shape=[2, 2]> (x) }"
    training = gt.grad(parse(text), loss="sum:y", wrt=["x"])

    gt.save(training, tmp_path / "m.onnx", portable=True)

    assert {"y", "i"} <= {o.name for o in onnx.load(tmp_path / "m.onnx").graph.output}


def test_the_commands_take_a_flag(run, tmp_path, model):
    body = """g (float[batch, 2, 8, 8] x) => (float loss) {
        c = Conv (x, w) p = MaxPool <kernel_shape=[3, 3], strides=[2, 2]> (c)
        loss = ReduceSum <keepdims=0> (p)
    }"""
    path = model(body, w=floats(3, 2, 1, 1))

    outcomes = [
        run("grad", path, "--portable", "-o", "a.onnx"),
        run("mirror", path, "--portable", "--batch", "2", "-o", "b.onnx"),
    ]

    assert [o.code for o in outcomes] == [0, 0]
    for name in ("a.onnx", "b.onnx"):
        nodes = onnx.load(tmp_path / name).graph.node
        assert [len(n.output) for n in nodes if n.op_type == "MaxPool"] == [1]
