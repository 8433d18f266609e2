"""`gradtool train --find-lr`: a picture and rates to take, and nothing written."""

import json
import re

import jsonschema
import numpy as np
import pytest
from trainings import examples, proto

from gradtool.commands.schema import schema_named

LINE = ("net.onnx", "--data", "data.npz", "--batch", "8", "--optimizer", "sgd", "--find-lr")


@pytest.fixture
def find(run, model, tmp_path):
    np.savez(tmp_path / "data.npz", **examples(80))
    model(proto(), "net.onnx")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def check(*more):
        done = run("train", *LINE, *more)
        after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert {name: after[name] for name in before} == before
        return done, sorted(set(after) - set(before))

    return check


def test_a_picture_and_two_rates_are_printed(find):
    machine = json.loads(find("--format", "json")[0].out)
    done, new = find()

    assert (done.code, new) == (0, [])
    assert "smoothed loss by learning rate" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    rates = [float(rate) for rate in re.findall(r"--lr (\S+)", done.out)]
    assert rates == pytest.approx([machine["steepest"], machine["least"]], rel=0.05)


def test_a_machine_has_every_loss(find):
    found = json.loads(find("--steps", "30", "--format", "json")[0].out)

    jsonschema.validate(found, schema_named("rates"))
    assert len(found["rates"]) == len(found["losses"]) == len(found["smooth"]) == 30


def test_the_page_has_the_curve_the_powers_of_ten_and_the_rates(find, tmp_path):
    done, new = find("--html", "rates.html")
    page = (tmp_path / "rates.html").read_text()

    assert (done.code, new) == (0, ["rates.html"])
    for said in ("<polyline", "1e-7", "1e-3", "1e1", "steepest descent", "least / 10"):
        assert said in page
    assert "<script" not in page
    assert find("--html", "rates.html")[0].code == 2
    assert find("--html", "rates.html", "--force")[0].code == 0
    assert (tmp_path / "rates.html").read_text() == page


@pytest.mark.parametrize(
    "more",
    [("--lr", "1"), ("--schedule", "cosine"), ("--eval", "data.npz"), ("-o", "x.onnx"),
     ("--run", "r"), ("--resume",), ("--ema", "0.9"), ("--epochs", "2"), ("--force",),
     ("--metric", "accuracy"), ("--ranks", "2"), ("--log", "wandb"), ("--patience", "2")],
)  # fmt: skip
def test_what_a_sweep_has_no_use_for_is_refused(find, more):
    done, new = find(*more)

    assert (done.code, new) == (2, [])
    assert more[0] in done.err


def test_bad_data_are_one_line(find, tmp_path):
    np.savez(tmp_path / "less.npz", x=np.ones((8, 6), np.float32))
    done, _ = find("--data", "less.npz")

    assert done.code == 2
    assert "nothing for input 'labels'" in done.err
