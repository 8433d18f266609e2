"""`gradtool train` and `kit merge` of adapters beside weights of few bits: no file is merged."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

TRAIN = ("train", "net.onnx", "--data", "data.npz", "--loss", "mse:y", "--lora", "2")


@pytest.fixture
def net(model, tmp_path):
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["":18, "com.microsoft":1]>
        g (float[n, 32] x) => (float[n, 3] y) {
        [head] y = com.microsoft.MatMulNBits <N = 3, K = 32, bits = 4, block_size = 16> (x, w, s)
    }"""
    )
    held = {
        "w": rng.integers(0, 256, (3, 2, 8)).astype(np.uint8),
        "s": rng.uniform(0.1, 0.2, (3, 2)).astype(np.float32),
    }
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in held.items())
    x, labels = (rng.normal(size=(16, n)).astype(np.float32) for n in (32, 3))
    np.savez(tmp_path / "data.npz", x=x, labels=labels)
    return model(proto, "net.onnx")


@pytest.mark.usefixtures("net")
def test_the_result_is_a_model_with_a_place_and_the_adapters(run, tmp_path):
    outcome = run(*TRAIN, "--steps", "4", "--batch", "8")

    assert outcome.code == 0
    assert "cannot be merged into few bits (w)" in outcome.err
    assert {p.name for p in tmp_path.glob("net.*")} >= {
        "net.onnx", "net.lora.onnx", "net.lora.onnx_adapter",
    }  # fmt: skip
    assert not (tmp_path / "net.trained.onnx").exists()
    written = onnx.load(tmp_path / "net.lora.onnx").graph
    assert "MatMulNBits" in {node.op_type for node in written.node}


@pytest.mark.usefixtures("net")
def test_an_output_that_is_named_is_the_model_with_a_place(run, tmp_path):
    outcome = run(*TRAIN, "--steps", "4", "--batch", "8", "-o", "mine.onnx")

    assert outcome.code == 0
    assert (tmp_path / "mine.onnx").exists()
    assert (tmp_path / "mine.onnx_adapter").exists()


@pytest.mark.usefixtures("net")
def test_means_are_refused_before_the_first_step(run):
    outcome = run(*TRAIN, "--steps", "4", "--ema", "0.9")

    assert outcome.code == 2
    assert "--ema" in outcome.err
    assert "few bits: w" in outcome.err
    assert "step 1" not in outcome.err


@pytest.mark.usefixtures("net")
def test_a_kit_is_merged_into_adapters_alone(run, tmp_path):
    given = ("--loss", "mse:y", "--lora", "2", "--optimizer", "sgd", "-o", "net.kit")
    assert run("kit", "net.onnx", *given).code == 0
    merge = ("kit", "merge", "net.kit", "net.kit/state.safetensors")

    refused = run(*merge)
    written = run(*merge, "--lora-adapter")

    assert refused.code == 2
    assert "--lora-adapter" in refused.err
    assert written.code == 0
    assert (tmp_path / "net.lora.onnx_adapter").exists()
