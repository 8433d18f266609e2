"""`gradtool predict`: the outputs of all examples, by any batch, and metrics of them."""

import json
import re
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from conftest import build
from trainings import examples, proto

FIXED = """net (float[4, 6] x) => (float[4, 3] y, float[4] top) {
    y = MatMul (x, w)
    top = ReduceMax <keepdims = 0> (y, one)
}"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = examples(50)
    np.savez("data.npz", **data)
    (tmp_path / "net.onnx").write_bytes(proto().SerializeToString())
    w = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    fixed = build(FIXED, w=w, one=np.array([1]))
    (tmp_path / "fixed.onnx").write_bytes(fixed.SerializeToString())
    return data


def by_ort(path, x):
    session = ort.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": x}), strict=True))


@pytest.mark.parametrize("batch", [1, 7, 32, 50, 64])
def test_outputs_are_those_of_any_batch(run, made, batch):
    assert (
        run("predict", "net.onnx", "--data", "data.npz", "-o", "y.npz", "--batch", str(batch)).code
        == 0
    )

    with np.load("y.npz") as found:
        np.testing.assert_allclose(found["y"], by_ort("net.onnx", made["x"])["y"], atol=1e-5)


def test_a_model_that_fixes_its_batch_predicts_all_examples(run, made):
    assert run("predict", "fixed.onnx", "--data", "data.npz", "-o", "y.npz").code == 0

    x = np.concatenate([made["x"], made["x"][:2]])
    parts = [by_ort("fixed.onnx", x[i : i + 4]) for i in range(0, 52, 4)]
    with np.load("y.npz") as found:
        for name in ("y", "top"):
            expected = np.concatenate([part[name] for part in parts])[:50]
            np.testing.assert_allclose(found[name], expected, atol=1e-5)


@pytest.mark.usefixtures("made")
def test_a_table_has_a_column_for_each_number(run):
    assert run("predict", "fixed.onnx", "--data", "data.npz", "-o", "y.npz").code == 0
    assert run("predict", "fixed.onnx", "--data", "data.npz", "-o", "y.csv").code == 0
    head, *rows = (line.split(",") for line in Path("y.csv").read_text().splitlines())

    assert head == ["y[0]", "y[1]", "y[2]", "top"]
    with np.load("y.npz") as found:
        np.testing.assert_array_equal(np.array(rows, np.float32)[:, :3], found["y"])
        np.testing.assert_array_equal(np.array(rows, np.float32)[:, 3], found["top"])


@pytest.mark.extra
@pytest.mark.usefixtures("made")
def test_parquet_has_the_numbers_of_npz(run):
    parquet = pytest.importorskip("pyarrow.parquet")
    for suffix in ("npz", "parquet"):
        line = ("predict", "fixed.onnx", "--data", "data.npz", "-o", f"y.{suffix}")
        assert run(*line, "--outputs", "top").code == 0

    with np.load("y.npz") as found:
        assert list(found) == ["top"]
        table = parquet.read_table("y.parquet")
        np.testing.assert_array_equal(table["top"].to_numpy(), found["top"])


def test_metrics_are_those_of_the_outputs(run, made):
    outcome = run(
        "predict", "net.onnx", "--data", "data.npz", "--metric", "accuracy", "--metric",
        "confusion", "--confusion", "c.svg", "--format", "json",
    )  # fmt: skip
    document = json.loads(outcome.out)
    chosen = by_ort("net.onnx", made["x"])["y"].argmax(1)
    matrix = np.zeros((3, 3), int)
    np.add.at(matrix, (made["labels"], chosen), 1)

    assert document["metrics"] == {
        "accuracy": np.mean(chosen == made["labels"]),
        "confusion": matrix.tolist(),
    }
    assert re.findall(r"label \d+, predicted \d+: \d+", Path("c.svg").read_text()) == [
        f"label {r}, predicted {c}: {matrix[r, c]}" for r in range(3) for c in range(3)
    ]
    told = run("predict", "net.onnx", "--data", "data.npz", "--metric", "confusion").out
    assert [line.split() for line in told.splitlines()[-3:]] == [
        [str(label), *map(str, row)] for label, row in enumerate(matrix)
    ]


def test_labels_and_inputs_may_be_called_otherwise(run, made):
    np.savez("other.npz", image=made["x"], kind=made["labels"])
    given = ("--map", "x=image", "--map", "labels=kind", "--metric", "accuracy")
    assert run("predict", "net.onnx", "--data", "other.npz", *given).code == 0
    assert run("predict", "net.onnx", "--data", "other.npz", "--map", "x=image",
               "--metric", "accuracy::kind").code == 0  # fmt: skip


def test_a_function_yields_batches_and_a_metric_sees_all(run, made, tmp_path):
    (tmp_path / "mine_p.py").write_text(
        "import numpy as np\n"
        "def data():\n"
        "    with np.load('data.npz') as f: x, t = f['x'], f['labels']\n"
        "    for i in range(0, 50, 20): yield {'x': x[i:i+20], 'labels': t[i:i+20]}\n"
        "def count(outputs, batch): return len(outputs['y']) + batch['x'].shape[0]\n"
    )
    outcome = run(
        "predict", "net.onnx", "--data", "mine_p:data", "-o", "s.npz", "--metric", "mine_p:count",
        "--metric", "accuracy", "--format", "json",
    )  # fmt: skip
    document = json.loads(outcome.out)

    assert document["metrics"]["mine_p:count"] == 100
    assert document["examples"] == 50
    with np.load("s.npz") as found:
        np.testing.assert_allclose(found["y"], by_ort("net.onnx", made["x"])["y"], atol=1e-5)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("net.onnx --data data.npz", "needs -o FILE, --metric NAME or both"),
        ("net.onnx --data data.npz -o y.txt", ".npz, .csv, .parquet"),
        ("net.onnx --data data.npz -o data.npz --force", "data.npz"),
        ("net.onnx --data data.npz -o y.npz --outputs z", "no such output"),
        ("net.onnx --data data.npz -o no/y.npz", "no folder"),
        ("net.onnx --data no.npz -o y.npz", "no.npz"),
        ("net.onnx --data data.npz --metric accuracy::no", "nothing for input 'no'"),
        ("net.onnx --data data.npz --metric loss", "--metric loss"),
        ("net.onnx --data data.npz --metric rmse", "no output has the shape"),
        ("net.onnx --data nan.npz -o y.npz", "NaN in example 3"),
        ("net.onnx --data data.npz -o y.onnx", ".npz, .csv, .parquet"),
    ],
)
def test_what_cannot_be_predicted_is_one_line_and_nothing_is_written(run, made, line, said):
    made["x"][3] = np.nan
    np.savez("nan.npz", **made)
    outcome = run("predict", *line.split())

    assert outcome.code == 2
    assert said in outcome.err.splitlines()[-1]
    assert not [*Path().glob("y.*")]


def test_a_training_graph_predicts_by_its_forward_model(run, made):
    assert run("grad", "net.onnx", "-o", "step.onnx").code == 0
    assert run("predict", "step.onnx", "--data", "data.npz", "-o", "y.npz").code == 0

    with np.load("y.npz") as found:
        assert list(found) == ["y"]
        np.testing.assert_allclose(found["y"], by_ort("net.onnx", made["x"])["y"], atol=1e-5)
