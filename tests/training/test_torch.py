"""Training comes to what PyTorch's comes to: the same start, order of data and optimizer."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))


@pytest.mark.extra
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop"])
@pytest.mark.parametrize("name", ["cnn", "lstm", "transformer"])
def test_losses_and_weights_are_those_of_pytorch(name, optimizer):
    pytest.importorskip("torch")
    from learning_torch import compared

    found = compared(name, 6, optimizer)

    assert max(found["float64"]) < 1e-5
    for ours, theirs in zip(found["ours"], found["torch"], strict=True):
        assert ours <= 4 * theirs + 1e-6  # of few steps; the benchmark has more


@pytest.mark.extra
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", "lstm", "transformer"])
def test_two_hundred_steps_are_those_of_pytorch(name):
    pytest.importorskip("torch")
    from learning_torch import compared

    found = compared(name, 200, "adamw")

    assert max(found["float64"]) < 1e-5
    for ours, theirs in zip(found["ours"], found["torch"], strict=True):
        assert ours <= 2 * theirs
