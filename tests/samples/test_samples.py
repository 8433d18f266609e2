"""The shipped samples are what their generators write, and they run."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import onnx
import pytest

SAMPLES = Path(__file__).parents[2] / "samples"
CLASSES = {"cnn": 10, "transformer": 256, "lstm": 128}
BATCH_AXIS = {"cnn": 0, "transformer": 0, "lstm": 1}

each_sample = pytest.mark.parametrize("name", CLASSES)


@pytest.fixture(scope="module")
def generated():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SAMPLES)
        spec = importlib.util.spec_from_file_location("make", SAMPLES / "make.py")
        make = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(make)
        yield make.files()


def load(name):
    with np.load(SAMPLES / f"{name}.npz", allow_pickle=False) as data:
        inputs = dict(data)
    return inputs, inputs.pop("labels")


def run(name, inputs):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(
        SAMPLES / f"{name}.onnx", providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@each_sample
@pytest.mark.parametrize("kind", ["onnx", "npz"])
def test_the_generators_reproduce_the_shipped_bytes(generated, name, kind):
    file = f"{name}.{kind}"

    assert generated[file] == (SAMPLES / file).read_bytes()


def test_no_other_file_is_generated(generated):
    assert sorted(generated) == sorted(
        path.name
        for path in SAMPLES.iterdir()
        if path.stem in CLASSES and path.suffix in {".onnx", ".npz"}
    )


@each_sample
def test_a_sample_is_a_valid_small_model(name):
    path = SAMPLES / f"{name}.onnx"

    onnx.checker.check_model(path, full_check=True)
    assert path.stat().st_size < 400 * 1024


@each_sample
def test_nodes_and_values_have_names_of_their_own(name):
    graph = onnx.load(SAMPLES / f"{name}.onnx").graph
    nodes = [node.name for node in graph.node]
    values = [value for node in graph.node for value in node.output]
    values += [value.name for value in [*graph.input, *graph.initializer]]

    assert all(nodes)
    assert len(set(nodes)) == len(nodes)
    assert all(values)
    assert len(set(values)) == len(values)


@each_sample
@pytest.mark.parametrize("batch", [1, None])
def test_onnxruntime_runs_a_sample(name, batch):
    inputs, labels = load(name)
    axis = BATCH_AXIS[name]
    first = slice(batch) if axis == 0 else (slice(None), slice(batch))
    outputs = run(name, {key: value[first] for key, value in inputs.items()})

    assert (*labels[first].shape, CLASSES[name]) == outputs["logits"].shape
    assert all(np.isfinite(value).all() for value in outputs.values())


@each_sample
def test_labels_are_classes_and_an_untrained_sample_does_not_know_them(name):
    inputs, labels = load(name)
    logits = run(name, inputs)["logits"].astype(np.float64)
    chosen = np.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    loss = np.mean(np.log(np.exp(logits).sum(axis=-1)) - chosen)

    assert labels.dtype == np.int64
    assert 0 <= labels.min() <= labels.max() < CLASSES[name]
    assert loss == pytest.approx(math.log(CLASSES[name]), rel=0.5)


def test_the_transformer_looks_at_no_later_token():
    inputs, _ = load("transformer")
    changed = inputs["tokens"].copy()
    changed[:, 20:] = 0

    before = run("transformer", inputs)["logits"]
    after = run("transformer", {"tokens": changed})["logits"]

    np.testing.assert_allclose(after[:, :20], before[:, :20], rtol=0, atol=1e-5)
    assert not np.allclose(after[:, 20:], before[:, 20:])
