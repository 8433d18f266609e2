from pathlib import Path
from tempfile import TemporaryDirectory

import ml_dtypes
import numpy as np
import pytest
from conftest import build
from graphs import floats, parse

import gradtool as gt
from gradtool.errors import MissingData, UsageError

LAYER = """g (float[N, 4] x, float[M, 4] c) => (float[M, 3] y) {
    [two] d = Concat <axis = 0> (x, x) [add] s = Add (d, c)
    [mm] h = MatMul (s, weight) [tanh] y = Tanh (h)
}"""


def loaded(text, sizes=None, **weights):
    """A model as it is loaded, with the texts of `sizes` as the first sizes of its inputs."""
    proto = build(text, **weights)
    for value, size in zip(proto.graph.input, sizes or (), strict=bool(sizes)):
        value.type.tensor_type.shape.dim[0].dim_param = size
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(proto.SerializeToString())
        return gt.load(path)


@pytest.fixture(scope="module")
def layer():
    model = loaded(LAYER, ["N", "2*N"], weight=floats(4, 3))
    return gt.grad(model, loss="mean:y", grad_buffers=True)


def batch(n=3, **others):
    return {"x": floats(n, 4), "c": floats(2 * n, 4, seed=1), **others}


def loss_of(arrays, weight):
    twice = np.concatenate([arrays["x"], arrays["x"]])
    return np.tanh((twice + arrays["c"]) @ weight).mean()


@pytest.mark.parametrize("engine", ["arena", "ort"])
def test_an_array_takes_the_place_of_the_parameter_whose_name_it_has(layer, engine):
    if engine == "ort":
        pytest.importorskip("onnxruntime")
    new = floats(4, 3, seed=7)
    found = gt.run(layer, batch(weight=new), engine=engine)

    assert found.loss == pytest.approx(loss_of(batch(), new), rel=1e-5)
    assert gt.run(layer, batch()).loss == pytest.approx(loss_of(batch(), floats(4, 3)), rel=1e-5)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"wieght": floats(4, 3)}, "no input or parameter 'wieght'; did you mean 'weight'?"),
        ({"weight_grad_inn": floats(4, 3)}, "'weight_grad_inn'; did you mean 'weight_grad_in'?"),
        ({"labels": floats(3)}, "no input or parameter 'labels'; the model takes x, c, "),
        ({"h": floats(6, 3)}, "no input or parameter 'h'; the model takes"),
        ({"weight": floats(3, 4)}, r"'weight' has shape \[3, 4\], the model takes \[4, 3\]"),
        ({"weight": np.zeros((4, 3))}, "'weight' is float64, the model takes float32"),
        ({"x": floats(4)}, r"'x' has shape \[4\], the model takes \[N,4\]"),
        ({"x": floats(3, 4, 1)}, r"'x' has shape \[3, 4, 1\], the model takes \[N,4\]"),
        ({"x": [[1.0], [1.0, 2.0]]}, "'x' is no array"),
        ({"x": ["a"]}, "'x' is <U1, the model takes float32"),
        ({"c": floats(5, 4)}, r"size 5 on axis 0, the model takes 2\*N = 6 \(N = 3\)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_in_one_line(layer, others, message):
    with pytest.raises(UsageError, match=message):
        gt.run(layer, batch(**others))


def test_numbers_and_lists_take_the_type_of_the_input(layer):
    found = gt.run(layer, {"x": [[1.0, 2, 3, 4]], "c": [[0] * 4, [0] * 4]})
    step = gt.grad(loaded(LAYER, ["N", "2*N"], weight=floats(4, 3)), loss="mean:y", optimizer="sgd")

    assert found.outputs.keys() == {"y", "loss"}
    slow = gt.run(step, batch(lr=0.0)).outputs["weight_next"]
    fast = gt.run(step, batch(lr=0.5)).outputs["weight_next"]
    np.testing.assert_array_equal(slow, floats(4, 3))
    assert np.abs(fast - slow).max() > 0


def test_bits_of_narrow_floats_come_back_from_the_files_that_hold_them(tmp_path):
    model = parse("g (bfloat16[2] x) => (bfloat16[2] y) { y = Neg (x) }")
    array = np.array([1.5, -3], ml_dtypes.bfloat16)
    np.savez(tmp_path / "x.npz", x=array)

    np.testing.assert_array_equal(gt.run(model, tmp_path / "x.npz").outputs["y"], -array)


def test_a_gradient_buffer_whose_sizes_nothing_tells_has_to_be_given():
    model = loaded(
        "g (float[H, 4] x, float[W, 4] z) => (float y) { m = ReduceSum <keepdims = 0> (x) "
        "n = ReduceSum <keepdims = 0> (z) s = Mul (m, n) y = Tanh (s) }",
        ["floor(H/2)", "H"],
    )
    training = gt.grad(model, wrt=["z"], grad_buffers=True)
    training.model.graph.inputs.remove(training.model.graph.inputs[1])

    with pytest.raises(MissingData, match="no input 'z_grad_in', and nothing tells the sizes"):
        gt.run(training, {"x": floats(3, 4)})


def test_an_input_that_leaves_its_symbol_open_is_what_it_is_given():
    text = "g (float[H, 4] x) => (float[H, 2] y) { t = Tanh (x) y = MatMul (t, w) }"
    model = loaded(text, ["floor(H/2 - 3/2) + 1"], w=floats(4, 2))
    training = gt.grad(model, loss="mean:y")
    x = floats(5, 4)

    assert gt.run(training, {"x": x}).loss == pytest.approx((np.tanh(x) @ floats(4, 2)).mean())


def test_what_a_fetched_value_needs_no_more_may_be_given_and_nothing_unknown(layer):
    found = gt.run(layer, batch(), fetch=["d"])

    np.testing.assert_array_equal(found.outputs["d"][:3], batch()["x"])
    with pytest.raises(UsageError, match="no input or parameter 'z'"):
        gt.run(layer, batch(z=floats(1)), fetch=["d"])


RESHAPED = (
    "g (float[N, 6] x) => (float[P, Q] y) { r = Reshape (x, to) s = Mul (r, scale) y = Tanh (s) }"
)


def reshaped(to, scale):
    return loaded(RESHAPED, to=np.array(to), scale=np.array(scale, np.float32))


def test_sizes_of_a_forward_model_may_be_given_anew():
    model = reshaped([-1, 3], [2.0])
    found = gt.run(model, {"x": floats(2, 6), "to": np.array([-1, 2])})

    np.testing.assert_allclose(
        found.outputs["y"], np.tanh(2 * floats(2, 6).reshape(-1, 2)), rtol=1e-5
    )


def test_a_gradient_keeps_the_sizes_that_it_was_made_for():
    training = gt.grad(reshaped([-1, 3], [2.0]), loss="mean:y", wrt=["x"])
    same = gt.run(training, {"x": floats(2, 6), "to": np.array([-1, 3])})

    assert same.loss == gt.run(training, {"x": floats(2, 6)}).loss
    with pytest.raises(UsageError, match="'to' decides sizes or axes, and this graph was made"):
        gt.run(training, {"x": floats(2, 6), "to": np.array([-1, 2])})


def test_a_number_that_is_no_parameter_may_be_given_anew():
    training = gt.grad(reshaped([-1, 3], [2.0]), loss="mean:y", wrt=["x"])
    other = gt.grad(reshaped([-1, 3], [3.0]), loss="mean:y", wrt=["x"])
    found = gt.run(training, {"x": floats(2, 6), "scale": np.float32([3.0])})
    expected = gt.run(other, {"x": floats(2, 6)})

    assert found.loss == expected.loss
    np.testing.assert_array_equal(found.gradients["x"], expected.gradients["x"])
