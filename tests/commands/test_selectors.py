"""Selectors on the command line: what each command does with globs, names and `--train-mode`."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from states import SIZE, network

WRITING = ["grad", "mirror", "recompute", "kit"]
COMMANDS = {
    "grad": (), "mirror": (), "recompute": ("--strategy", "sqrt"), "report": (),
    "run": ("--dim", "b=3"), "kit": (),
}  # fmt: skip
MODES = [(), ("--train-mode",), ("--optimizer", "adamw"), ("--optimizer", "sgd", "--train-mode")]


@pytest.fixture
def states(tmp_path):
    """`states.onnx`, which has every kind of tensor."""
    onnx.save(network(0).model(), tmp_path / "states.onnx")
    return "states.onnx"


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(8, SIZE, SIZE)).astype("f") for _ in range(2))
    np.savez(tmp_path / "data.npz", x=x, labels=y)
    return "data.npz"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_passes_over_what_a_glob_cannot_mean(run, states, command):
    mode = MODES[list(COMMANDS).index(command) % len(MODES)]
    if command == "kit":  # which has an optimizer of its own
        mode = ("--train-mode",)
    common = (states, "--loss", "mse", *COMMANDS[command], *mode)

    assert run(command, *common, "--wrt", "head.*", *into(command, "a")).code == 0
    refused = run(command, *common, "--wrt", "head.bn.mean", *into(command, "b"))
    assert (refused.code, refused.out) == (2, "")
    assert "--wrt head.bn.mean: 'head.bn.mean' is a running statistic" in refused.err


def into(command, name):
    return ("-o", name if command == "kit" else f"{name}.onnx") if command in WRITING else ()


@pytest.mark.parametrize("mode", [(), ("--train-mode",), ("--micro-batches", "2")])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_train_leaves_what_a_glob_cannot_mean(run, states, data, mode, optimizer, tmp_path):
    outcome = run("train", states, "--data", data, "--loss", "mse", "--wrt", "head.*",
                  "--batch", "4", "--optimizer", optimizer, "--lr", "0.1", *mode)  # fmt: skip
    before, after = (
        {
            t.name: onnx.numpy_helper.to_array(t)
            for t in onnx.load(tmp_path / name).graph.initializer
        }
        for name in ("states.onnx", "states.trained.onnx")
    )
    moved = {n for n, value in before.items() if not np.array_equal(after[n], value)}

    assert outcome.code == 0
    trains = {"head.bn.mean", "head.bn.var"} if "--train-mode" in mode else set()
    assert {"head.w", "head.b"} <= moved
    assert moved <= {"head.w", "head.b", "head.bn.weight", "head.bn.bias", "head.number"} | trains
    assert trains <= moved


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--train-mode", "states.onnx"], 0),
        (["states.onnx", "--train-mode"], 0),
        (["--train-mode", "--", "states.onnx"], 0),
        (["--no-grad", "body.w", "--train-mode", "states.onnx"], 0),
        (["states.onnx", "--train-mode=head.*"], 0),
        (["states.onnx", "--train-mode=head.*", "--train-mode=*.mean"], 0),
        (["states.onnx", "--train-mode=body.*"], 2),
        (["--train-mode", "states.onnx", "head.*"], 2),
    ],
)
@pytest.mark.usefixtures("states")
def test_train_mode_takes_a_glob_after_an_equals_sign_alone(run, flags, code):
    outcome = run("grad", "--loss", "mse", *flags)

    assert outcome.code == code, outcome.err
    if code == 0:
        written = onnx.load("states.grad.onnx")
        state = {p.key: p.value for p in written.metadata_props}["gradtool.state"]
        assert set(json.loads(state)) == {"head.bn.mean", "head.bn.var"}


def test_a_frozen_norm_is_said_once(run, states, data):
    outcome = run("train", states, "--data", data, "--loss", "mse", "--wrt", "head.w",
                  "--batch", "4", "--train-mode", "--micro-batches", "2")  # fmt: skip

    assert outcome.code == 0
    assert outcome.err.count("BatchNormalization in inference form, --wrt freezes") == 1


@pytest.mark.usefixtures("states")
def test_a_configuration_names_norms(run, tmp_path):
    (tmp_path / "gradtool.toml").write_text(
        '[[case]]\nname = "a"\nmodel = "states.onnx"\nloss = "mse"\ntrain-mode = "head.*"\n'
        "dims = { b = 3 }\n"
    )

    assert run("check", "--update").code == 0
    assert run("check").code == 0
