"""A new head on a value of a model: `--head NAME:CLASSES`."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import build
from onnx import numpy_helper
from trainings import examples, proto, weights

import gradtool as gt
from gradtool.errors import UsageError

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
IMAGES = """net (float[batch, 2, 6, 6] x) => (float[batch, 3] probabilities) {
    c = Conv <kernel_shape = [3, 3]> (x, k)
    r = Relu (c)
    p = GlobalAveragePool (r)
    f = Flatten (p)
    y = Gemm <transB = 1> (f, head_w, head_b)
    probabilities = Softmax (y)
}"""
WORDS = """net (int64[batch, time] x) => (float[batch, time, 4] hidden, float[batch, 7] y) {
    e = Gather (table, x)
    hidden = Tanh (e)
    m = ReduceMean <keepdims = 0> (hidden, axes)
    y = MatMul (m, v)
}"""


def images(tmp_path, text=IMAGES, name="net.onnx", **changed):
    rng = np.random.default_rng(0)
    shapes = {"k": (8, 2, 3, 3), "head_w": (3, 8), "head_b": (3,)}
    held = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    onnx.save(build(text, **held | changed), tmp_path / name)
    return tmp_path / name


def words(tmp_path):
    held = {
        "table": np.ones((9, 4), np.float32), "v": np.ones((4, 7), np.float32),
        "axes": np.array([1]),
    }  # fmt: skip
    onnx.save(build(WORDS, **held), tmp_path / "words.onnx")
    return tmp_path / "words.onnx"


def tensors(model):
    return {n: v.const_value.numpy() for n, v in model.graph.initializers.items()}


@pytest.mark.parametrize(
    ("value", "read", "ops"),
    [
        ("probabilities", "f", ["Gemm"]), ("y", "f", ["Gemm"]), ("f", "f", ["Gemm"]),
        ("r", "r", ["GlobalAveragePool", "Flatten", "Gemm"]),
        ("p", "p", ["GlobalAveragePool", "Flatten", "Gemm"]),
    ],
)  # fmt: skip
def test_a_head_is_put_on_features_or_in_place_of_the_classifier(tmp_path, value, read, ops):
    model = gt.load(images(tmp_path), head=f"{value}:5")
    nodes = list(model.graph)

    assert [n.op_type for n in nodes[-len(ops) :]] == ops
    assert nodes[-len(ops)].inputs[0].name == read
    assert set(tensors(model)) == {"k", "head.weight", "head.bias"}
    assert tensors(model)["head.weight"].shape == (5, 8)
    (output,) = model.graph.outputs
    assert (output.name, list(output.shape)[1:]) == ("logits", [5])


@pytest.mark.parametrize("value", ["hidden", "m"])
def test_features_lie_along_the_last_axis(tmp_path, value):
    model = gt.load(words(tmp_path), head=f"{value}:3")

    assert [v.name for v in model.graph.outputs] == ["logits"]
    assert list(model.graph.outputs[0].shape)[-1] == 3
    assert len(model.graph.outputs[0].shape) == (3 if value == "hidden" else 2)
    assert tensors(model)["head.weight"].shape == ((4, 3) if value == "hidden" else (3, 4))


def test_numbers_are_those_of_a_linear_layer_by_seed_and_name(tmp_path):
    held = {"k": np.ones((400, 2, 3, 3), np.float32), "head_w": np.ones((3, 400), np.float32)}
    path = images(tmp_path, **held)
    first, again, other = (tensors(gt.load(path, head="f:50", seed=seed)) for seed in (1, 1, 2))
    bound = 1 / np.sqrt(400)

    for name in ("head.weight", "head.bias"):
        assert first[name].tobytes() == again[name].tobytes() != other[name].tobytes()
        assert bound * 0.9 < np.abs(first[name]).max() <= bound
    assert np.std(first["head.weight"]) == pytest.approx(bound / np.sqrt(3), rel=0.02)


@pytest.mark.extra
def test_they_are_spread_as_torch_spreads_them(tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer = torch.nn.Linear(400, 50)
    held = {"k": np.ones((400, 2, 3, 3), np.float32), "head_w": np.ones((3, 400), np.float32)}
    found = tensors(gt.load(images(tmp_path, **held), head="f:50"))

    for name, theirs in (("head.weight", layer.weight), ("head.bias", layer.bias)):
        theirs = theirs.detach().numpy()  # noqa: PLW2901
        assert found[name].shape == theirs.shape
        grid = np.linspace(-0.05, 0.05, 21)
        ours, there = (np.histogram(a, grid)[0] / a.size for a in (found[name], theirs))
        far = 0.02 if theirs.size > 1000 else 0.3
        assert np.abs(np.cumsum(ours) - np.cumsum(there)).max() < far


def test_a_name_that_is_still_taken_is_another_one(tmp_path):
    path = tmp_path / "net.onnx"
    made = proto()
    for item in (*made.graph.initializer, *made.graph.node):
        names = [item] if isinstance(item, onnx.TensorProto) else []
        for each in names:
            each.name = {"w1": "head.weight"}.get(each.name, each.name)
        if not names:
            item.input[:] = [{"w1": "head.weight"}.get(n, n) for n in item.input]
    onnx.save(made, path)
    model = gt.load(path, head="y:2")

    assert "new_head.weight" in tensors(model)
    np.testing.assert_array_equal(tensors(model)["head.weight"], weights()["w1"])
    assert "new_head.weight" in model.meta["gradtool.headed"]


def test_statistics_of_norms_stay_outputs():
    first, *others = gt.load(SAMPLES / "cnn.onnx", head="logits:3").graph.outputs

    assert first.name == "logits"
    assert others
    assert all("running" in v.name for v in others)


def test_the_command_writes_a_file_with_its_head_that_onnxruntime_runs(run, tmp_path):
    images(tmp_path)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 2, 6, 6)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, labels=(x.mean((1, 2, 3)) > 0).astype(np.int64))
    line = ["train", "net.onnx", "--data", "data.npz", "--head", "probabilities:2", "--wrt",
            "head.*", "--epochs", "3", "--batch", "10", "--lr", "0.1"]  # fmt: skip
    whole = run(*line)

    assert whole.code == 0, whole.err
    assert "8 features of 'f' to 2 classes" in whole.err
    assert "in place of probabilities" in whole.err
    assert "parameters: 2 of 2" in whole.err
    written = onnx.load(tmp_path / "net.trained.onnx")
    onnx.checker.check_model(written, full_check=True)
    held = {t.name: numpy_helper.to_array(t) for t in written.graph.initializer}
    before = tensors(gt.load(tmp_path / "net.onnx", head="y:2"))
    np.testing.assert_array_equal(held["k"], before["k"])
    assert not np.array_equal(held["head.weight"], before["head.weight"])
    session = onnxruntime.InferenceSession(tmp_path / "net.trained.onnx")
    (logits,) = session.run(["logits"], {"x": x[:4]})
    assert logits.shape == (4, 2)

    half = [*line[:-4], "--batch", "10", "--lr", "0.1", "--run", "half", "-o", "half.onnx"]
    assert run(*half, "--checkpoint-every", "5").code == 0
    assert (tmp_path / "half.onnx").read_bytes() == (tmp_path / "net.trained.onnx").read_bytes()
    again = run(*half, "--checkpoint-every", "5", "--resume", "--seed", "3")
    assert (again.code, "seed is 0" in again.err) == (2, True)


def test_weights_beside_the_model_are_found_and_written(tmp_path):
    made = onnx.load(images(tmp_path))
    expected = numpy_helper.to_array(made.graph.initializer[0])
    (tmp_path / "beside").mkdir()
    path = tmp_path / "beside" / "net.onnx"
    onnx.save(made, path, save_as_external_data=True, size_threshold=0, location="net.data")
    training = gt.grad(gt.load(path, head="f:2"), wrt=["head.*"], optimizer="sgd")
    with gt.Session(training) as session:
        session.save(tmp_path / "out.onnx")

    found = gt.load(tmp_path / "out.onnx")
    np.testing.assert_array_equal(tensors(found)["k"], expected)


def test_grad_builds_the_graph_of_a_head(run, tmp_path):
    images(tmp_path)
    made = run("grad", "net.onnx", "--head", "f:4", "--wrt", "head.*", "--format", "json")

    assert made.code == 0, made.err
    assert set(json.loads(made.out)["gradients"]) == {"head.weight", "head.bias"}


def test_a_whole_file_may_be_written_with_a_head_and_made_a_kit(run, tmp_path):
    gt.save(gt.load(images(tmp_path), head="f:4"), tmp_path / "headed.onnx")

    assert run("kit", "headed.onnx", "--optimizer", "sgd").code == 0


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("f", "write NAME:CLASSES"),
        ("f:0", "write NAME:CLASSES"),
        (":3", "write NAME:CLASSES"),
        ("g:3", "no such value"),
        ("x1:3", "no such value"),
    ],
)
def test_what_cannot_have_a_head_is_refused_in_one_line(tmp_path, head, message):
    with pytest.raises(UsageError, match=message):
        gt.load(images(tmp_path), head=head)


def test_a_head_needs_floats_of_known_features(tmp_path):
    with pytest.raises(UsageError, match="a head reads floats"):
        gt.load(words(tmp_path), head="x:3")
    open_ = build("net (float[batch, n] x) => (float[batch, n] y) { y = Relu (x) }")
    with pytest.raises(UsageError, match="number of features is open"):
        gt.load(open_, head="y:3")
    step = gt.grad(gt.load(proto()))
    with pytest.raises(UsageError, match="holds its gradients already"):
        gt.load(step.model, head="y:3")


def test_the_names_of_former_classes_are_gone(run, tmp_path):
    made = onnx.load(images(tmp_path))
    onnx.helper.set_model_props(made, {"gradtool.classes": '{"labels": ["a", "b"]}', "by": "me"})
    onnx.save(made, tmp_path / "net.onnx")
    held = examples(10)
    x = np.random.default_rng(1).standard_normal((10, 2, 6, 6)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, labels=held["labels"])
    assert run("train", "net.onnx", "--data", "data.npz", "--head", "y:3").code == 0

    props = {p.key: p.value for p in onnx.load(tmp_path / "net.trained.onnx").metadata_props}
    assert "gradtool.classes" not in props
    assert props["by"] == "me"


def test_a_kit_has_the_model_with_its_head_beside_it(run, tmp_path):
    images(tmp_path)
    made = run("kit", "net.onnx", "--head", "y:4", "--wrt", "head.*", "--optimizer", "sgd")
    assert made.code == 0, made.err
    folder = tmp_path / "net.kit"
    assert json.loads((folder / "manifest.json").read_text())["model"]["file"] == "original.onnx"
    (tmp_path / "net.onnx").unlink()
    merged = run("kit", "merge", "net.kit", "net.kit/state.safetensors", "-o", "merged.onnx")

    assert merged.code == 0, merged.err
    found, first = (
        tensors(gt.load(p)) for p in (tmp_path / "merged.onnx", folder / "original.onnx")
    )
    assert {name: a.tobytes() for name, a in found.items()} == {
        name: a.tobytes() for name, a in first.items()
    }
    assert found["head.weight"].shape == (4, 8)
