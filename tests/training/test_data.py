"""Data of every kind are taken, and what does not fit is one line before the first step."""

import itertools
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import build
from trainings import examples, load, proto, stream

import gradtool as gt
from gradtool.errors import MissingData, UsageError
from gradtool.io import safetensors
from gradtool.training.callbacks import Watcher

GOOD = examples(20)
OPTIONS = {"batch": 4, "steps": 6, "lr": 0.1, "optimizer": "sgd"}


def losses(data, names=None, watcher=None, **options):
    with gt.Trainer(load(), **OPTIONS | options) as trainer:
        return trainer.fit(data, names=names, watcher=watcher).losses


def folder_of(path, arrays):
    path.mkdir()
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    return path


def written(kind, path, arrays):
    """A source of some arrays."""
    if kind == "npz":
        np.savez(path / "a.npz", **arrays)
        return path / "a.npz"
    if kind == "npy":
        return folder_of(path / "folder", arrays)
    if kind == "safetensors":
        safetensors.save(path / "a.safetensors", arrays)
        return path / "a.safetensors"
    if kind in ("parquet", "arrow"):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import feather, parquet

        columns = {
            n: pa.array(list(a)) if a.ndim == 1 else pa.array([list(row) for row in a])
            for n, a in arrays.items()
        }
        table = pa.table(columns)
        target = path / f"a.{kind}"
        (parquet.write_table if kind == "parquet" else feather.write_feather)(table, target)
        return target
    return arrays


@pytest.mark.parametrize("kind", ["npz", "npy", "safetensors", "arrays"])
def test_every_source_gives_the_same_steps(kind, tmp_path):
    assert losses(written(kind, tmp_path, GOOD)) == losses(GOOD)


@pytest.mark.extra
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_tables_give_the_same_steps(kind, tmp_path):
    pytest.importorskip("pyarrow")

    assert losses(written(kind, tmp_path, GOOD)) == losses(GOOD)


def test_a_function_that_returns_arrays_has_all_examples():
    assert losses(lambda: GOOD) == losses(GOOD)


def test_a_function_yields_batches_anew_each_epoch():
    seen = []

    def batches(epoch, seed):
        seen.append((epoch, seed))
        yield from stream(epoch, seed)

    found = losses(batches, steps=7, seed=4)

    assert len(found) == 7
    assert seen[:3] == [(0, 4), (1, 4), (2, 4)]


def test_module_and_function_are_found_in_this_folder(tmp_path, monkeypatch):
    (tmp_path / "my_batches.py").write_text(
        "import numpy as np\n"
        "def few():\n"
        "    for n in range(2):\n"
        "        yield {'x': np.full((4, 6), n, np.float32), 'labels': np.zeros(4, np.int64)}\n"
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)

    assert len(losses("my_batches:few", steps=None, epochs=3)) == 6
    assert sys.path == before


def test_names_are_mapped():
    given = {"image": GOOD["x"], "labels": GOOD["labels"]}

    assert losses(given, names={"x": "image"}) == losses(GOOD)


class Said(Watcher):
    def __init__(self):
        self.lines = []

    def said(self, line):
        self.lines.append(line)


def test_numbers_of_another_size_are_taken_and_said():
    said = Said()
    given = {"x": GOOD["x"].astype(np.float64), "labels": GOOD["labels"].astype(np.int32)}

    assert losses(given, watcher=said) == losses(GOOD)
    assert said.lines == [
        "data: 'x' is float64, taken as float32, rounded",
        "data: 'labels' is int32, taken as int64",
    ]


def test_what_the_model_does_not_take_is_left_aside_and_said():
    said = Said()

    assert losses(GOOD | {"id": np.arange(20)}, watcher=said) == losses(GOOD)
    assert said.lines == ["data: left aside: id"]


def changed(name, place, value):
    array = GOOD[name].copy()
    array[place] = value
    return GOOD | {name: array}


BAD = {
    "nothing for input 'labels'; it holds x: name it with --map labels=NAME": {"x": GOOD["x"]},
    "'x' is <U1, the model takes float32": GOOD | {"x": np.full((20, 6), "a")},
    "'labels' is float32, the model takes int64": GOOD | {"labels": GOOD["labels"].astype("f")},
    "'x' is complex128, the model takes float32": GOOD | {"x": GOOD["x"].astype(complex)},
    "input 'x' has size 5 on axis 1, the model takes 6": GOOD | {"x": GOOD["x"][:, :5]},
    "input 'x' has shape [1, 6, 2], the model takes": GOOD | {"x": np.stack([GOOD["x"]] * 2, 2)},
    "input 'labels' has shape [1, 2], the model takes": GOOD
    | {"labels": np.stack([GOOD["labels"]] * 2, 1)},
    "'x' has shape [], the model takes [batch,6]": GOOD | {"x": np.float32(1)},
    "different numbers of examples: 'x' 20, 'labels' 19": GOOD | {"labels": GOOD["labels"][:19]},
    "holds no examples": {"x": GOOD["x"][:0], "labels": GOOD["labels"][:0]},
    "3 examples are less than a batch of 4": {"x": GOOD["x"][:3], "labels": GOOD["labels"][:3]},
    "'x' has a NaN in example 17": changed("x", (17, 3), np.nan),
    "'labels' has 3 in example 5, the model takes 0 to 2": changed("labels", 5, 3),
    "'labels' has -1 in example 0, the model takes 0 to 2": changed("labels", 0, -1),
}


@pytest.mark.parametrize(("said", "kind"), [*itertools.product(BAD, ["arrays", "npz", "npy"])])
def test_what_does_not_fit_is_one_line_that_names_it(said, kind, tmp_path):
    with pytest.raises((UsageError, MissingData)) as error:
        losses(written(kind, tmp_path, BAD[said]))

    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("said", [key for key in BAD if "example" not in key])
def test_batches_of_a_function_are_looked_at_as_well(said):
    with pytest.raises((UsageError, MissingData)) as error:
        losses(lambda: iter([BAD[said]]))

    assert said.replace("[1, ", "[20, ") in str(error.value)


@pytest.mark.parametrize("said", [key for key in BAD if "in example" in key])
def test_numbers_in_batches_of_a_function_are_looked_at(said):
    batches = [{n: a[i : i + 4] for n, a in BAD[said].items()} for i in range(0, 20, 4)]

    with pytest.raises(UsageError) as error:
        losses(lambda: iter(batches))

    assert said in str(error.value)


def test_a_label_that_is_ignored_is_none():
    made = build(
        """net (float[batch, 6] x, int64[batch] labels) => (float loss) {
        y = MatMul (x, w)
        loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (y, labels)
    }""",
        w=np.ones((6, 3), np.float32),
    )
    given = changed("labels", 3, -100)
    with gt.Trainer(gt.load(made), **OPTIONS) as trainer:
        assert len(trainer.fit(given).losses) == 6
        with pytest.raises(UsageError, match=r"takes 0 to 2, or -100 for none"):
            trainer.fit(changed("labels", 3, -99))


NO_FILES = {
    "nothing.npz": b"",
    "text.npz": b"hello",
    "cut.npz": None,
    "text.safetensors": b"hello",
}


@pytest.mark.parametrize("name", NO_FILES)
def test_a_file_that_is_none_is_one_line(name, tmp_path):
    path = tmp_path / name
    if NO_FILES[name] is None:
        np.savez(path, **GOOD)
        path.write_bytes(path.read_bytes()[:-200])
    else:
        path.write_bytes(NO_FILES[name])
    with pytest.raises(UsageError) as error:
        losses(path)

    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("no/such/file.npz", "no such file"),
        ("no_such_module:f", "no module 'no_such_module'"),
        ("itertools:no_such", "has no function 'no_such'"),
        (lambda: 5, "returned int; arrays by name, or what yields batches"),
        (lambda: iter([5]), "is int, arrays by name are needed"),
        (lambda: iter([]), "has no batch in epoch 0"),
        (lambda: {"x": object()}, "data: 'x'"),
    ],
)
def test_what_is_no_source_is_one_line(given, said):
    with pytest.raises((UsageError, MissingData)) as error:
        losses(given)

    assert said in str(error.value) or "nothing for input" in str(error.value)


def test_an_empty_folder_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"the folder holds no \.npy file"):
        losses(tmp_path)


class Cutting(Watcher):
    """Changes a file after some steps."""

    def __init__(self, change):
        self.change = change

    def stepped(self, step, *_):
        if step == 2:
            self.change()


CHANGES = {
    "cut": lambda path: path.open("r+b").truncate(path.stat().st_size - 100),
    "longer": lambda path: path.open("ab").write(b"more"),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_file_that_changes_under_way_is_one_line(how, tmp_path):
    folder = folder_of(tmp_path / "folder", examples(400))
    watcher = Cutting(lambda: CHANGES[how](folder / "x.npy"))

    with pytest.raises(UsageError) as error:
        losses(folder, steps=60, watcher=watcher)

    assert "x.npy: is gone" in str(error.value) or "x.npy: has changed" in str(error.value)


@pytest.mark.sample(3)
@pytest.mark.parametrize("sample", ["cnn", "transformer", "lstm"])
def test_the_axis_of_the_examples_is_found_wherever_it_is(sample):
    """That of `lstm` is the second: time goes first."""
    folder = Path(__file__).parents[2] / "samples"
    with gt.Trainer(folder / f"{sample}.onnx", batch=2, lr=1e-3, shuffle=False) as trainer:
        history = trainer.fit(folder / f"{sample}.npz", evaluate=folder / f"{sample}.npz")

        kernels = trainer.session.plans[0].program.kernels
    whole = gt.grad(gt.load(folder / f"{sample}.onnx"), optimizer="adamw")
    with np.load(folder / f"{sample}.npz") as found, gt.Session(whole, kernels=kernels) as session:
        axis = 1 if sample == "lstm" else 0
        batches = [
            {n: np.take(a, range(i, i + 2), axis) for n, a in found.items()}
            for i in range(0, history.step * 2, 2)
        ]
        expected = [session.step(batch | {"lr": 1e-3}).loss for batch in batches]

    assert list(history.losses) == expected


def fixed(size):
    """The model with a fixed number of examples."""
    made = proto()
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = size
    return gt.load(onnx.ModelProto.FromString(made.SerializeToString()))


@pytest.mark.parametrize("parts", [1, 2])
def test_a_model_may_fix_the_number_of_examples(parts):
    with gt.Trainer(fixed(4), **OPTIONS | {"batch": 4 * parts}) as trainer:
        found = trainer.fit(GOOD, evaluate=examples(7, 3))
    with gt.Trainer(load(), **OPTIONS | {"batch": 4 * parts, "micro_batches": parts}) as trainer:
        expected = trainer.fit(GOOD, evaluate=examples(7, 3))

    assert found.losses == expected.losses
    assert found.evaluations[0][1]["loss"] == pytest.approx(
        expected.evaluations[0][1]["loss"], rel=1e-6
    )
    with gt.Trainer(fixed(4), batch=6) as trainer, pytest.raises(UsageError, match="4 examples at"):
        trainer.fit(GOOD)
