"""`--batch` opens a file that is fixed at one example, for every command alike."""

import numpy as np
import pytest
from conftest import build, sampled

FLAT = """net (float[1, 2, 3] x) => (float[1, 2] y) {{
    f = {0} (x, target)
    y = MatMul (f, w)
}}"""
COMMANDS = {
    "grad": ("grad",), "run": ("run",), "report": ("report",), "mirror": ("mirror", "--report"),
    "recompute": ("recompute", "--strategy", "sqrt"), "kit": ("kit",),
    "train": ("train", "--data", "data.npz"),
}  # fmt: skip


@pytest.fixture
def folder(model, tmp_path):
    w = np.ones((6, 2), np.float32)
    model(build(FLAT.format("Reshape"), w=w, target=np.array([1, 6])), "net.onnx")
    picks = (
        FLAT.format("Gather").replace("f = ", "p = ").replace("y =", "f = Reshape (p, flat)\n y =")
    )
    model(build(picks, w=w, target=np.array([0]), flat=np.array([1, 6])), "picks.onnx")
    rng = np.random.default_rng(0)
    data = {"x": rng.standard_normal((12, 2, 3)), "labels": rng.standard_normal((12, 2))}
    np.savez(tmp_path / "data.npz", **{n: a.astype(np.float32) for n, a in data.items()})
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", sampled(COMMANDS, 3))
def test_every_command_opens_it(run, command):
    outcome = run(*COMMANDS[command], "net.onnx", "--batch", "4", "--loss", "mse")

    assert outcome.code == 0, outcome.err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", sampled([n for n in COMMANDS if n != "train"], 3))
def test_what_keeps_it_fixed_is_named_in_one_line(run, command):
    outcome = run(*COMMANDS[command], "picks.onnx", "--batch", "4", "--loss", "mse")

    assert outcome.code == 2
    assert "input 'x' is fixed at batch 1 in the model, by Gather" in outcome.err.splitlines()[-1]


@pytest.mark.usefixtures("folder")
def test_a_training_that_cannot_open_it_says_so_and_takes_one_after_the_other(run):
    words = ("--loss", "mse", "--batch", "4")
    opened = run(*COMMANDS["train"], "net.onnx", *words)
    fixed = run(*COMMANDS["train"], "picks.onnx", *words)
    alone = run(*COMMANDS["train"], "net.onnx", "--loss", "mse", "--force")

    assert "the file is fixed at batch 1: opened to 4" in opened.err
    assert "Gather" in fixed.err
    assert "4 examples are computed one after the other" in fixed.err
    assert "fixed at batch 1: a step is of 1 example" in alone.err
    assert (opened.code, fixed.code, alone.code) == (0, 0, 0)


@pytest.mark.usefixtures("folder")
def test_a_case_opens_it(run, tmp_path):
    (tmp_path / "gradtool.toml").write_text(
        '[[case]]\nname = "net"\nmodel = "net.onnx"\nbatch = 4\nloss = "mse"\n'
    )
    outcome = run("check", "--update")

    assert outcome.code == 0, outcome.err
