"""Steps of models whose sizes are expressions take what fits them and nothing else."""

import numpy as np
import pytest
from conftest import sampled
from feeding import TOLERANCE, command, examine, misfits, refused
from symbolic_models import case

import gradtool as gt

QUICK = (10, 3)


def check(seed, folder):
    pytest.importorskip("onnxruntime")
    made = case(seed)
    path = folder / "model.onnx"
    path.write_bytes(made.model.SerializeToString())
    model = gt.load(path)
    batches = [made.batch(seed), made.batch(seed + 1)]
    far = {what: off for what, off in examine(model, batches, folder) if not off <= TOLERANCE}

    assert far == {}, made.name
    graph = gt.grad(model, loss="mean:y", input_grad=["x"])
    assert list(refused(graph, batches[0])) == [], made.name


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", sampled(QUICK))
def test_files_of_every_kind_run_with_any_sizes(seed, tmp_path):
    check(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_files_of_every_kind_run_with_any_sizes_at_length(seed, tmp_path):
    check(seed, tmp_path)


def test_the_command_line_refuses_what_does_not_fit_in_one_line(tmp_path):
    made = case(QUICK[0])
    path = tmp_path / "model.onnx"
    path.write_bytes(made.model.SerializeToString())
    graph = gt.grad(gt.load(path), loss="mean:y")
    gt.save(graph, tmp_path / "grad.onnx")

    for what, wrong in misfits(made.batch(1)).items():
        np.savez(tmp_path / "in.npz", **wrong)
        code, said = command(
            "run", str(tmp_path / "grad.onnx"), "--inputs", str(tmp_path / "in.npz")
        )
        assert (code, said.count("\n")) == (2, 1), f"{what}: {said}"
