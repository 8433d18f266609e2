from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import gradtool as gt
from gradtool import io
from gradtool.errors import ModelError
from gradtool.exec.device import Device
from gradtool.exec.executor import Executor
from gradtool.exec.parameters import parameters_of
from gradtool.io import opset
from gradtool.planning.no_recompute import no_recompute
from gradtool.program.flatten import flatten
from gradtool.shapes.inference import register_shapes


def forms():
    """Every form and every opset of the table."""
    table = (Path(__file__).parent / "old_opsets.txt").read_text(encoding="utf-8")
    for section in table.split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        name, _, versions = heading.partition(": ")
        known = [int(version) for version in versions.split(", ")]
        for version in known:
            marks = () if version == known[0] else pytest.mark.exhaustive
            yield pytest.param(version, body, id=f"{name} @{version}", marks=marks)


@pytest.fixture(autouse=True)
def _converted_here(monkeypatch):
    """The converter in this process: starting a child for each model takes longer than it."""
    monkeypatch.setattr(opset, "_convert", opset._convert_here)


def feeds_of(model):
    random = np.random.default_rng(0)
    feeds = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value or 3 for dim in kind.shape.dim]
        drawn = random.normal(size=shape).astype(np.float32)
        if value.name == "v":  # a variance
            drawn = np.abs(drawn) + np.float32(0.1)
        integers = kind.elem_type == onnx.TensorProto.INT64
        feeds[value.name] = random.integers(0, 3, shape) if integers else drawn
    return feeds


def run(model, feeds):
    register_shapes()
    executor = Executor(no_recompute(flatten(model)), Device("cpu", np), parameters_of(model))
    for value in model.graph.inputs:
        executor.set_input(value.name, feeds[value.name])
    executor.step()
    return [executor.result(number) for number in executor.program.outputs]


def session(file):
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def same(found, expected):
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("version", "body"), list(forms()))
def test_an_old_form_computes_what_onnxruntime_computes_of_it(write, text, tmp_path, version, body):
    model = text(f"g {body}", opset=version, ir_version=6 if version < 11 else 8)
    feeds = feeds_of(model)
    expected = session(model.SerializeToString()).run(None, feeds)
    loaded = io.load(write(model), shapes={k: v.shape for k, v in feeds.items()})
    raised, _ = io.save(loaded, tmp_path / "raised.onnx")

    assert loaded.graph.opset_imports[""] == 18
    assert loaded.meta["gradtool.raised_from"] == version
    assert loaded.ir_version == 8
    with np.errstate(all="ignore"):
        same(run(loaded, feeds), expected)
    same(session(raised).run(None, feeds), expected)


BATCH_NORM = """g (float[3, 4, 5] x, float[4] s, float[4] b, float[4] m, float[4] v) => (OUTPUTS) {
    NAMES = BatchNormalization <momentum = 0.8> (x, s, b, m, v)
}"""


@pytest.mark.parametrize("version", [7, 9, 13])
@pytest.mark.parametrize("names", ["y, p, q, t, u", "y, p, q", "y, p, q, t"])
def test_batch_normalization_with_many_outputs_trains(write, text, version, names):
    """Below opset 14 that is how its training mode is written."""
    body = BATCH_NORM.replace("OUTPUTS", "y, p, q").replace("NAMES", names)
    model = text(body, opset=version, ir_version=6)
    feeds = feeds_of(model)
    loaded = io.load(write(model))
    [node] = loaded.graph

    assert node.attributes.get_int("training_mode") == 1
    assert len(node.outputs) == 3
    y, mean, var = run(loaded, feeds)
    x = feeds["x"]
    mu, sigma = x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)
    scale, bias = feeds["s"][:, None], feeds["b"][:, None]
    same([y], [(x - mu) / np.sqrt(sigma + 1e-5) * scale + bias])
    same([mean], [0.8 * feeds["m"] + 0.2 * mu.reshape(-1)])
    same([var], [0.8 * feeds["v"] + 0.2 * sigma.reshape(-1)])


def test_saved_statistics_that_are_read_are_refused(write, text):
    body = BATCH_NORM.replace("OUTPUTS", "y, t").replace("NAMES", "y, p, q, t")

    with pytest.raises(ModelError, match="'y': its saved statistics are read"):
        io.load(write(text(body, opset=9, ir_version=6)))


def test_the_mask_of_an_old_dropout_is_true_everywhere(write, text):
    """Opset 10 leaves it open; opset 12 says so."""
    body = "g (float[2, 3] x) => (y, m) { y, m = Dropout <ratio = 0.9> (x) }"
    x = np.ones((2, 3), np.float32)
    y, mask = run(io.load(write(text(body, opset=10, ir_version=6))), {"x": x})

    assert (y == x).all()
    assert mask.all()


def test_rounding_half_pixels_otherwise_than_down_is_refused(write, text):
    body = """g (float[1, 1, 4, 4] x) => (y) <float[0] r = {}, float[4] s = {1, 1, 2, 2}> {
        y = Resize <coordinate_transformation_mode = "tf_half_pixel_for_nn"> (x, r, s)
    }"""

    with pytest.raises(ModelError, match="Resize node 'y': tf_half_pixel_for_nn is known with fl"):
        io.load(write(text(body, opset=11, ir_version=6)))


@pytest.mark.parametrize("version", [18, 20])
@pytest.mark.parametrize("target", [None, 21, 23])
def test_group_normalization_by_group_is_renewed(write, text, version, target):
    """Deprecated from opset 18 on, and back in opset 21 with a scale per channel."""
    body = """g (float[2, 6, 5] x, float[3] s, float[3] b) => (y) {
        y = GroupNormalization <num_groups = 3, epsilon = 0.001> (x, s, b)
    }"""
    model = text(body, opset=version)
    feeds = feeds_of(model)
    groups = feeds["x"].reshape(2, 3, -1)
    mean, var = groups.mean(-1, keepdims=True), groups.var(-1, keepdims=True)
    expected = (groups - mean) / np.sqrt(var + 0.001) * feeds["s"][:, None] + feeds["b"][:, None]

    same(run(io.load(write(model), opset=target), feeds), [expected.reshape(2, 6, 5)])


def network(version, ir_version):
    """A small network in operators that opsets 7 to 28 have."""
    body = """g (float[b, 3] x, float[3, 4] w, float[4] c) => (y) {
        h = MatMul (x, w) a = Add (h, c) t = Tanh (a) y = Softmax <axis = 1> (t)
    }"""
    header = f'<ir_version: {ir_version}, opset_import: ["" : {version}]>'
    return onnx.parser.parse_model(f"{header} {body}")


@pytest.mark.parametrize("version", [7, 13, 17, 18, 20, 23, 24, 25, 26, 27, 28])
def test_a_training_graph_has_the_opset_of_its_model_where_it_may(write, tmp_path, version):
    """Rules need opset 18; nothing is raised beyond what onnxruntime reads."""
    if version > onnx.defs.onnx_opset_version():
        pytest.skip(f"this onnx knows no opset {version}")
    least = helper.find_min_ir_version_for([helper.make_opsetid("", version)])
    model = network(version, least)
    path = write(model)
    training = gt.grad(gt.load(path, batch=2), loss="sum:y", wrt=["x", "w", "c"])
    written, _ = gt.save(training, tmp_path / "grad.onnx")
    proto = onnx.load(written)

    assert proto.opset_import[0].version == max(version, 18)
    assert proto.ir_version == max(least, 8)
    feeds = feeds_of(model) | {"x": np.ones((2, 3), np.float32)}
    result = gt.run(training, feeds)
    assert set(result.gradients) == {"x", "w", "c"}
    if version <= 26:
        names = [training.gradients[name] for name in result.gradients]
        same(result.gradients.values(), session(written).run(names, feeds))
