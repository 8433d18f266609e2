"""The samples that learn end in figures that people know, by the lines that their scripts show."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

SAMPLES = Path(__file__).parents[2] / "samples"
UNTRAINED = 256.0  # the perplexity of a byte of which nothing is known


def made(name, folder, *arguments):
    """What a script writes; returns the `gradtool train` line that it shows, for that folder."""
    script = SAMPLES / f"{name}.py"
    subprocess.run(
        [sys.executable, str(script), "--out", str(folder), *arguments], check=True,
        capture_output=True,
    )  # fmt: skip
    text = script.read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"^ +gradtool (train .*)$", text, re.MULTILINE)
    return shlex.split(line.replace("DIR", str(folder)))


def trained(run, *arguments):
    """The evaluations of a training."""
    outcome = run(*arguments, "--format", "json", "--force")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)["evaluations"]


@pytest.mark.exhaustive
def test_a_small_gpt_learns_a_text(run, tmp_path):
    """Half a minute of training is cut to a few seconds here."""
    line = made("letters", tmp_path)
    found = [each["perplexity"] for each in trained(run, *line, "--steps", "150", "--every", "50")]

    assert found == sorted(found, reverse=True)
    assert UNTRAINED > 4 * found[0] > 4 * found[-1]
    assert found[-1] < 15


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The folder of the digits, and what their training evaluates."""
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("digits")
    line = made("digits", folder)
    done = subprocess.run(
        [sys.executable, "-m", "gradtool", *line, "--format", "json"], check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return folder, json.loads(done.stdout)


@pytest.mark.extra
def test_digits_are_told_apart(digits):
    _, found = digits

    assert found["best"]["value"] >= 0.97
    assert found["evaluations"][-1]["accuracy"] >= 0.97


@pytest.mark.extra
def test_what_was_learned_helps_where_there_is_little_to_learn_from(run, digits):
    """The head alone is trained, on a base that knows digits and on one that knows nothing."""
    folder, _ = digits
    best = []
    for base in ("digits.trained.onnx", "digits.onnx"):
        line = made("transfer", folder)
        line[1] = str(folder / base)
        best.append(max(each["accuracy"] for each in trained(run, *line)))
        before, after = (
            {t.name: t.SerializeToString() for t in onnx.load(path).graph.initializer}
            for path in (folder / base, folder / "transfer.onnx")
        )
        assert before.keys() == after.keys()
        changed = {name for name, held in after.items() if held != before[name]}
        assert changed == {"head.weight", "head.bias"}

    assert best[0] >= 0.85
    assert best[0] > best[1] + 0.03


def test_what_scripts_write_is_always_the_same(tmp_path):
    for folder in ("a", "b"):
        made("letters", tmp_path / folder)

    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    with np.load(tmp_path / "a" / "letters.train.npz") as found:
        np.testing.assert_array_equal(found["tokens"][:, 1:], found["labels"][:, :-1])
