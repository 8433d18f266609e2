"""Arrays of another form than an input: taken where one meaning fits, else refused in a line."""

import numpy as np
import onnx_ir as ir
import pytest
from conftest import build
from data_sources import image_model, normal
from trainings import examples, load

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.training.adapting import adaptation
from gradtool.training.callbacks import Watcher

GOOD = examples(20)
GOOD["labels"][:3] = [0, 1, 2]
OPTIONS = {"batch": 4, "steps": 6, "lr": 0.1, "optimizer": "sgd"}


class Said(Watcher):
    def __init__(self):
        self.lines = []

    def said(self, line):
        self.lines.append(line)


def losses(model, data, watcher=None, evaluate=None, **options):
    with gt.Trainer(model, **OPTIONS | options) as trainer:
        return trainer.fit(data, watcher=watcher, evaluate=evaluate).losses


def one_hot(labels, kind):
    return np.eye(3, dtype=kind)[labels]


FORMS = {
    "taken as one-hot labels of 3 classes": [
        one_hot(GOOD["labels"], kind) for kind in ("f4", "i8", "?", "u1")
    ],
    "its labels begin at 1: taken less 1": [GOOD["labels"] + 1, (GOOD["labels"] + 1)[:, None]],
    "reshaped to a number": [GOOD["labels"][:, None]],
}


@pytest.mark.parametrize(("said", "place"), [(s, n) for s in FORMS for n in range(len(FORMS[s]))])
def test_labels_of_another_form_train_to_the_same_bits(said, place):
    heard = Said()

    assert losses(load(), GOOD | {"labels": FORMS[said][place]}, heard) == losses(load(), GOOD)
    assert f"data: 'labels' is {said}" in heard.lines


def test_labels_from_one_are_so_in_what_is_evaluated_too():
    given = GOOD | {"labels": GOOD["labels"] + 1}
    few = {name: array[GOOD["labels"] < 2] for name, array in GOOD.items()}
    with gt.Trainer(load(), **OPTIONS) as trainer:
        found = trainer.fit(given, evaluate=few | {"labels": few["labels"] + 1}).evaluations
    with gt.Trainer(load(), **OPTIONS) as trainer:
        assert trainer.fit(GOOD, evaluate=few).evaluations == found


def test_ignored_labels_stay_where_others_begin_at_one():
    ignored = GOOD | {"labels": np.where(np.arange(20) < 4, -100, GOOD["labels"])}
    ignored["labels"][4:7] = [0, 1, 2]
    given = ignored | {"labels": np.where(ignored["labels"] < 0, -100, ignored["labels"] + 1)}

    assert losses(load(), given, loss="ce@ignore=-100") == losses(
        load(), ignored, loss="ce@ignore=-100"
    )


BAD = {
    "has no single 1 among zeros in example 3": one_hot(GOOD["labels"], "f4") * [1, 1, 0.5],
    "the model takes 0 to 2": GOOD["labels"] + 2,
}
BAD["has no single 1 among zeros in example 3"][:3] = one_hot(GOOD["labels"], "f4")[:3]
BAD["has no single 1 among zeros in example 3"][3] = [1, 0, 1]


@pytest.mark.parametrize("said", BAD)
def test_what_is_no_such_label_is_refused(said):
    with pytest.raises(UsageError, match=said):
        losses(load(), GOOD | {"labels": BAD[said]})


SHAPES = [  # of an input, of data, what they become; None where nothing fits
    (["batch", 1], [5], "reshaped to 1"),
    (["batch", 3, 8, 6], [5, 8, 6, 3], "its channels moved in front: 3x8x6"),
    (["batch", 8, 6, 3], [5, 3, 8, 6], "its channels moved behind: 8x6x3"),
    (["batch", 3, "h", "w"], [5, 7, 9, 3], "its channels moved in front: 3x7x9"),
    (["batch", 1, 8, 8], [5, 8, 8], "reshaped to 1x8x8"),
    (["batch", 8, 8], [5, 1, 8, 8], "reshaped to 8x8"),
    (["batch", 1, 8, 8], [5, 64], "reshaped to 1x8x8"),
    (["batch", 3, 3, 3], [5, 3, 3, 3], None),
    (["batch", 3, "h", "w"], [5, 8, 8, 4], None),
    (["batch", 6], [5, 7], None),
    (["batch", 6], [5, 6, 2], None),
]


@pytest.mark.parametrize(("takes", "shape", "said"), SHAPES)
def test_one_form_fits_or_none(takes, shape, said):
    value = ir.Value(name="x", shape=ir.Shape(takes), type=ir.TensorType(ir.DataType.FLOAT))
    found = adaptation(value, shape, np.dtype("f4"))

    assert (None if found is None else found.said) == said
    if found is not None:
        made = found.apply(np.zeros(shape, "f4"), np.arange(5))
        assert made.ndim == len(takes)


def test_two_forms_that_fit_are_refused():
    sizes = ir.Shape(["batch", "c", "h", 4])
    value = ir.Value(name="x", shape=sizes, type=ir.TensorType(ir.DataType.FLOAT))
    with pytest.raises(ValueError, match="in front: 7x4x4 or its channels moved behind: 4x7x4"):
        adaptation(value, [5, 4, 4, 7], np.dtype("f4"))


def test_bytes_of_images_are_scaled_where_somebody_says_how(tmp_path):
    pixels = np.random.default_rng(2).integers(0, 256, (12, 8, 6, 3)).astype(np.uint8)
    data = {"x": pixels, "labels": np.repeat(np.arange(2), 6)}
    floats = data | {"x": pixels.astype(np.float32).transpose(0, 3, 1, 2)}
    path = tmp_path / "net.onnx"
    path.write_bytes(image_model().SerializeToString())
    heard = Said()
    options = {"loss": "ce", "lr": 1e-4}

    assert losses(path, data, heard, **options) == losses(path, floats, **options)
    assert "'x' is uint8, taken as float32" in str(heard.lines)
    unit = floats | {"x": floats["x"] / np.float32(255)}
    assert losses(path, data, image_mean="0", **options) == losses(path, unit, **options)


def test_a_column_of_targets_is_that_of_one_output(tmp_path):
    net = build(
        "net (float[batch, 6] x) => (float[batch, 1] y) { y = MatMul (x, w) }", w=normal(6, 1)
    )
    path = tmp_path / "net.onnx"
    path.write_bytes(net.SerializeToString())
    target = GOOD["x"].sum(1)
    row = {"x": GOOD["x"], "labels": target}
    column = row | {"labels": target[:, None]}

    assert losses(path, row, loss="mse") == losses(path, column, loss="mse")
