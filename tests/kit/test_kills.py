"""A process may be killed at any moment: a kit is whole, and adapters have their model."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from kills import content, is_supported, result, states, visible
from kits import net

import gradtool as gt
from gradtool.graph.training_info import TrainingInfo
from gradtool.kit.write import write_kit
from gradtool.workloads import lora_files

pytestmark = pytest.mark.skipif(not is_supported(), reason="needs processes that fork")
SIZES = {"I": 3, "H": 4, "O": 2, "B": 5}


@pytest.fixture
def before(tmp_path):
    folder = tmp_path / "before"
    folder.mkdir()
    (folder / "m.onnx").write_bytes(net("mlp", SIZES))
    return folder


@pytest.mark.slow
def test_a_kit_is_the_old_one_or_the_new_one(tmp_path, before):
    work = tmp_path / "work"
    work.mkdir()

    def write(optimizer, folder=work):
        graph = gt.grad(gt.load(folder / "m.onnx"), loss="ce", optimizer=optimizer)
        write_kit(graph, folder / "kit", force=True)

    write("adam", before)
    action = partial(write, "sgd")
    old, new = content(before), result(work, before, action)
    assert old != new
    for when, left, again in states(work, before, action):
        assert visible(left) in (old, new), when
        assert again == new, when


@pytest.mark.exhaustive
def test_no_adapter_is_new_beside_an_old_model(tmp_path, before):
    work = tmp_path / "work"
    names = ("m.lora.onnx", "m.lora.onnx_adapter")

    def write(rank, folder):
        model = gt.grad(gt.load(folder / "m.onnx"), loss="ce", lora=rank).model
        held = model.graph.initializers
        arrays = {
            name: np.full(held[name].shape.numpy(), rank, np.float32)
            for each in TrainingInfo.of(model).lora for name in each.names
        }  # fmt: skip
        source = folder / "m.onnx"
        lora_files.write(source, TrainingInfo.of(model).lora, arrays, folder / names[0], force=True)

    write(1, before)
    action = partial(write, 2, work)
    old, new = content(before), result(work, before, action)
    for when, left, again in states(work, before, action):
        found = tuple(left.get(name) for name in names)
        mixed = ((old[names[0]], new[names[1]]), (new[names[0]], old[names[1]]))
        assert found not in mixed, when
        assert again == new, when
