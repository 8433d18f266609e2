"""`gradtool train` and `kit merge` of adapters beside weights of few bits: no file is merged."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from native_calls import needs_library
from onnx import numpy_helper

from gradtool.io.file_tensors import MAPS

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


@needs_library
@pytest.mark.skipif(not MAPS, reason="this system maps no files of weights")
@pytest.mark.parametrize("seed", range(3))
def test_adapters_beside_mapped_weights_are_those_beside_weights_in_memory(run, seed, tmp_path):
    """A result in floats replaces the model that the training reads."""
    rng = np.random.default_rng(seed)
    rows, k = int(rng.integers(40, 70)), 32 * int(rng.integers(110, 130))
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["":18, "com.microsoft":1]>
        g (float[n, 32] x) => (float[n, {rows}] y) {{
        h = MatMul (x, wide)
        r = Tanh (h)
        y = com.microsoft.MatMulNBits <N = {rows}, K = {k}, bits = 4, block_size = 32> (r, w, s)
    }}"""
    )
    held = {
        "wide": rng.standard_normal((32, k)).astype(np.float32) / 8,
        "w": rng.integers(0, 256, (rows, k // 32, 16)).astype(np.uint8),
        "s": rng.uniform(0.01, 0.02, (rows, k // 32)).astype(np.float32),
    }
    proto.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in held.items())
    x, labels = (rng.normal(size=(16, n)).astype(np.float32) for n in (32, rows))
    np.savez(tmp_path / "data.npz", x=x, labels=labels)
    found = []
    for name, outside in (("inside", False), ("beside", True)):
        onnx.save(proto, tmp_path / f"{name}.onnx", save_as_external_data=outside,
                  location="beside.data", size_threshold=0)  # fmt: skip
        given = ("--batch", "8", "--kernels", "native")
        report = run("report", f"{name}.onnx", *TRAIN[4:], *given)
        steps = ("--steps", "6", "--checkpoint-every", "2", "--eval", "data.npz", *given)
        adapted = run("train", f"{name}.onnx", *TRAIN[2:], "--run", name, *steps)
        trained = run(
            "train", f"{name}.onnx", *TRAIN[2:6], "--wrt", "wide", *steps, "-o", f"{name}.onnx",
            "--force",
        )  # fmt: skip
        adapter = (tmp_path / f"{name}.lora.onnx_adapter").read_bytes()
        wide = onnx.load(tmp_path / f"{name}.onnx").graph.initializer[0].raw_data
        found.append((adapter, wide))

        assert ("mapped, read-only" in report.out) == outside
        assert adapted.code == trained.code == 0, adapted.err + trained.err

    assert found[0] == found[1]
    assert found[0][1] != held["wide"].tobytes()
