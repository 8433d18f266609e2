from __future__ import annotations

import numpy as np
import onnx
import pytest
from conftest import sampled, swept
from declared_shapes import KINDS, declared_otherwise, undeclared
from image_networks import image_network
from shape_graphs import shape_graph

import gradtool as gt
from gradtool import io
from gradtool.errors import ModelError, UsageError


def weighted(text: str, opset: int = 18, **weights: np.ndarray) -> onnx.ModelProto:
    """A model of ONNX text, with weights."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(w, n) for n, w in weights.items())
    return model


def written(model: onnx.ModelProto, tmp_path) -> bytes:
    gt.save(gt.grad(gt.load(model), loss="mean"), tmp_path / "grad.onnx", force=True)
    return (tmp_path / "grad.onnx").read_bytes()


@pytest.mark.parametrize("seed", swept(120, 6))
def test_shapes_that_are_declared_change_nothing(seed, tmp_path):
    model = image_network(seed) if seed % 2 else shape_graph(seed, is_open=True)
    lies = declared_otherwise(model, seed)

    assert written(lies, tmp_path) == written(undeclared(model), tmp_path)


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", sampled(KINDS, 4))
def test_an_old_file_is_raised_whatever_it_declares(kind, tmp_path):
    model = weighted(
        "g (float[b, 8] x) => (float[b, 4] y) {"
        " h = MatMul (x, w)  r = Relu (h)  y = Softmax <axis = 1> (r) }",
        opset=11,
        w=np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4),
    )
    lies = [written(declared_otherwise(model, seed, (kind,)), tmp_path) for seed in range(3)]

    assert set(lies) == {written(undeclared(model), tmp_path)}


@pytest.mark.parametrize("declared", ["[b]", "[1, seq]", "[]", "[b, 3]", "[0, 2]", "[9, 9, 9]"])
def test_an_output_has_the_shape_that_inference_finds(write, declared):
    model = weighted(
        f"g (float[b, 8] x) => (float{declared} y) {{ y = MatMul (x, w) }}".replace("[]", ""),
        w=np.ones((8, 2), np.float32),
    )
    loaded = io.load(write(model))

    assert [str(dim) for dim in loaded.graph.outputs[0].shape] == ["b", "2"]


def test_a_constant_may_be_declared_a_scalar(write):
    """So are all of those that onnxruntime-genai's builder writes."""
    loaded = io.load(
        write(
            "g (float[2, 3] x) => (y) <float v>"
            " { v = Constant <value_floats = [1.0]> ()  y = Add (x, v) }"
        )
    )

    assert list(loaded.graph.outputs[0].shape) == [2, 3]


def test_what_is_declared_otherwise_is_said_of_a_verbose_command(run, tmp_path):
    text = "g (float[b, 8] x) => (float[b] y) { y = MatMul (x, w) }"
    model = weighted(text, w=np.eye(8, dtype=np.float32))
    onnx.save(model, tmp_path / "m.onnx")
    line = "a hint, inference decides: value 'y' is declared [b] and has shape [b,8]"

    assert line in run("-v", "grad", tmp_path / "m.onnx").err
    assert line not in run("grad", tmp_path / "m.onnx", "--force").err


def test_a_type_that_is_declared_otherwise_is_refused(write):
    with pytest.raises(ModelError, match="'y' is declared INT64 and is FLOAT"):
        io.load(write("g (float[2] x) => (int64[2] y) { y = Relu (x) }"))


@pytest.mark.parametrize("declared", ["[b]", "[3, 9]", "[m, 8]", "[9, 9, 9]"])
def test_an_input_that_is_an_output_has_the_shape_of_the_input(write, declared):
    model = io.load(write(f"g (float[n, 8] x) => (float{declared} x, y) {{ y = Relu (x) }}"))

    assert [str(v.shape) for v in (*model.graph.inputs, *model.graph.outputs)] == ["[n,8]"] * 3
    assert len(model.meta["gradtool.hints"]) == (declared != "[m, 8]")


def test_an_input_is_no_output_of_another_type(write):
    with pytest.raises(ModelError, match="'x' is FLOAT, and declared DOUBLE as an output"):
        io.load(write("g (float[2] x) => (double[2] x, y) { y = Relu (x) }"))


ZERO = "g (float[0, 4] past, float[b, 4] x) => (y) { y = Concat <axis = 0> (past, x) }"


def test_an_input_of_size_0_is_one_of_unknown_size(write):
    model = io.load(write(ZERO))

    assert [str(v.shape) for v in model.graph.inputs] == ["[past_dim0,4]", "[b,4]"]
    assert model.meta["gradtool.hints"] == (
        "input 'past' declares size 0 on axis 0: taken as open",
    )


@pytest.mark.parametrize("how", [{"dims": {"past_dim0": 0}}, {"shapes": {"past": [0, 4]}}])
def test_size_0_is_a_size_where_it_is_given(write, tmp_path, how):
    made = gt.grad(gt.load(write(ZERO), **how), loss="sum:y", input_grad=["x", "past"])
    x = np.ones((3, 4), np.float32)
    found = gt.run(made, {"x": x, "past": np.zeros((0, 4), np.float32)})
    gt.save(made, tmp_path / "grad.onnx")

    assert found.gradients["past"].shape == (0, 4)
    assert found.gradients["x"].tolist() == x.tolist()
    assert list(gt.load(tmp_path / "grad.onnx").graph.inputs[0].shape) == [0, 4]


def test_a_step_with_a_size_of_0_gives_what_its_other_sizes_give():
    """Attention over an empty past is attention."""
    rng = np.random.default_rng(0)
    model = weighted(
        """g (float[b, p, 4] past, float[b, s, 4] x) => (y) {
        h = MatMul (x, w)  k = Concat <axis = 1> (past, h)  t = Transpose <perm = [0, 2, 1]> (k)
        a = MatMul (h, t)  q = Softmax <axis = -1> (a)  y = MatMul (q, k) }""",
        w=rng.standard_normal((4, 4)).astype(np.float32),
    )
    without = onnx.ModelProto()
    without.CopyFrom(model)
    del without.graph.input[0]
    without.graph.node[1].op_type, without.graph.node[1].input[:] = "Identity", ["h"]
    del without.graph.node[1].attribute[:]
    feeds = {"x": rng.standard_normal((2, 3, 4)).astype(np.float32)}
    alone = gt.run(gt.grad(gt.load(without), loss="mean:y"), feeds)
    both = gt.run(
        gt.grad(gt.load(model, dims={"p": 0}), loss="mean:y"),
        feeds | {"past": np.zeros((2, 0, 4), np.float32)},
    )

    assert both.gradients["w"] == pytest.approx(alone.gradients["w"], rel=1e-5)


def test_a_size_of_0_where_nodes_need_more_is_refused(write):
    with pytest.raises((ModelError, UsageError), match="MatMul"):
        io.load(
            write("g (float[b, k] x, float[3, 2] w) => (y) { y = MatMul (x, w) }"), dims={"k": 0}
        )
