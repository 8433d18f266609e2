"""Nothing that is read is written over, however its path is written."""

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import sampled
from trainings import examples, proto

COMMANDS = {
    "grad": ("grad", "net.onnx", "-o"),
    "mirror": ("mirror", "net.onnx", "--batch", "4", "-o"),
    "recompute": ("recompute", "net.onnx", "--batch", "4", "--strategy", "sqrt", "-o"),
    "run": ("run", "net.onnx", "--inputs", "data.npz", "--save-grads"),
    "outputs": ("run", "net.onnx", "--inputs", "data.npz", "--save-outputs"),
    "html": ("run", "net.onnx", "--inputs", "data.npz", "--html"),
    "train": ("train", "net.onnx", "--data", "data.npz", "--batch", "8", "-o"),
    "trace": ("train", "net.onnx", "--data", "data.npz", "--batch", "8", "--trace"),
}
READ = ("net.onnx", "weights.bin", "data.npz")
WAYS = ("itself", "dotted", "link", "hard link", "linked folder")


@pytest.fixture
def folder(tmp_path):
    np.savez(tmp_path / "data.npz", **examples(16))
    onnx.save(proto(), tmp_path / "net.onnx", save_as_external_data=True, location="weights.bin",
              size_threshold=0)  # fmt: skip
    return tmp_path


def another(folder, name, way):
    """Another path of a file that is there."""
    if way in ("link", "hard link"):
        made = folder / f"other{Path(name).suffix}"
        (made.symlink_to if way == "link" else made.hardlink_to)(folder / name)
        return made.name
    if way == "linked folder":
        (folder / "here").symlink_to(folder)
        return f"here/{name}"
    return name if way == "itself" else f"./../{folder.name}/{name}"


CASES = [case for case in product(COMMANDS, READ, WAYS) if not (
    case[:2] == ("train", "net.onnx") or (
        case[1] == "data.npz" and case[0] in ("grad", "mirror", "recompute")))]  # fmt: skip


@pytest.mark.parametrize(("command", "name", "way"), sampled(CASES, 9, by=lambda case: case[:1]))
def test_what_is_read_is_not_written_over(run, folder, command, name, way):
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    outcome = run(*COMMANDS[command], another(folder, name, way), "--force")

    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 1
    assert all((folder / path).read_bytes() == found for path, found in before.items())


def test_a_default_name_that_leads_to_the_source_is_refused(run, folder):
    (folder / "net.grad.onnx").hardlink_to(folder / "net.onnx")

    assert "is the file net.onnx, which is read" in run("grad", "net.onnx", "--force").err


def test_a_training_may_replace_its_model(run, folder):
    words = ("train", "net.onnx", "--data", "data.npz", "--batch", "8", "-o", "net.onnx")
    before = (folder / "net.onnx").read_bytes()

    assert run(*words).code == 2
    assert run(*words, "--force").code == 0
    assert (folder / "net.onnx").read_bytes() != before
    assert run("grad", "net.onnx").code == 0
