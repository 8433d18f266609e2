import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from clones import recompute
from graphs import floats, parse

import gradtool as gt
from gradtool.functions.calls import inline
from gradtool.workloads.ort_options import EXACT, how_to_load, session

MIB = 2**20
LENGTH, SIZE = 16, MIB  # values of 4 MiB


def chain(size: int = SIZE) -> gt.TrainingGraph:
    body = "\n".join(f"h{i} = Tanh (h{i - 1})" for i in range(1, LENGTH + 1))
    text = f"g (float[{size}] h0) => (float[{size}] h{LENGTH}) {{\n{body}\n}}"
    return gt.grad(parse(text), loss="sum", wrt=["h0"])


def recomputed(training: gt.TrainingGraph) -> ir.Model:
    """Every fourth value kept."""
    return recompute(training.model, [f"h{i}" for i in range(LENGTH) if i % 4])


def test_a_graph_that_recomputes_takes_less_memory():
    training = chain()
    x = floats(SIZE)

    keep, again = (gt.run(m, {"h0": x}, engine="ort") for m in (training, recomputed(training)))

    np.testing.assert_allclose(again.gradients["h0"], keep.gradients["h0"], rtol=1e-6)
    if keep.ort_peak_bytes is None:
        pytest.skip("this system does not reset the high-water mark of a process")
    assert keep.ort_peak_bytes > 0.9 * LENGTH * 4 * MIB
    assert again.ort_peak_bytes < 0.75 * keep.ort_peak_bytes


def test_gradients_agree_with_ours_however_often_a_step_runs():
    training = chain(64)
    model = recomputed(training)
    x = floats(64)

    theirs = gt.run(model, {"h0": x}, engine="ort", repeat=3)

    np.testing.assert_allclose(
        theirs.gradients["h0"], gt.run(training, {"h0": x}).gradients["h0"], rtol=1e-5
    )
    assert theirs.plan is None


def test_nodes_run_in_the_order_of_the_file(tmp_path):
    model = recomputed(chain(8))
    inline(model)
    prefix = str(tmp_path / "profile")
    options = EXACT | {"enable_profiling": True, "profile_file_prefix": prefix}
    opened = session(ir.to_proto(model).SerializeToString(), options)
    opened.run(None, {"h0": floats(8)})

    events = json.loads(Path(opened.end_profiling()).read_text())
    suffix = "_kernel_time"
    ran = [e["name"].removesuffix(suffix) for e in events if e["name"].endswith(suffix)]
    assert ran == [node.name for node in model.graph]


def test_a_file_says_which_options_keep_its_clones(tmp_path):
    gt.save(recomputed(chain(8)), tmp_path / "m.onnx")

    options = json.loads(ir.load(tmp_path / "m.onnx").metadata_props["gradtool.load"])

    assert options == {
        "disabled_optimizers": ["CommonSubexpressionElimination"],
        "enable_cpu_mem_arena": False,
        "enable_mem_pattern": False,
        "execution_order": "PRIORITY_BASED",
        "graph_optimization_level": "ORT_DISABLE_ALL",
    }
    opened = session(str(tmp_path / "m.onnx"), options)
    assert opened.run(["h0_grad"], {"h0": floats(8)})[0].shape == (8,)


def test_a_file_with_barriers_or_without_clones_needs_no_options(tmp_path):
    training = chain(8)
    model = recomputed(training)
    gt.save(model, tmp_path / "plain.onnx")
    again = gt.load(tmp_path / "plain.onnx")
    gt.save(again, tmp_path / "barred.onnx", barrier=True)
    gt.save(training, tmp_path / "keep.onnx")

    for name in ("barred", "keep"):
        written = ir.load(tmp_path / f"{name}.onnx")
        assert "gradtool.load" not in written.metadata_props
        assert how_to_load(written) == ""


def test_people_are_told_the_options():
    said = how_to_load(recomputed(chain(8)))

    assert said == (
        "stock onnxruntime merges recomputed nodes with the originals unless it is loaded as "
        "InferenceSession(path, options, disabled_optimizers=['CommonSubexpressionElimination']) "
        "with options.enable_cpu_mem_arena = False, options.enable_mem_pattern = False, "
        "options.execution_order = ExecutionOrder.PRIORITY_BASED, "
        "options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL; "
        "a file with barriers needs no options"
    )


def test_the_command_says_that_the_peak_is_measured(run, tiny_model, tiny_inputs):
    outcome = run("run", tiny_model, "--inputs", tiny_inputs, "--engine", "ort")
    document = run("run", tiny_model, "--inputs", tiny_inputs, "--engine", "ort", "--format",
                   "json").out  # fmt: skip

    assert outcome.code == 0
    if "ort_peak_bytes" not in document:
        pytest.skip("this system does not reset the high-water mark of a process")
    assert "beside inputs and weights: measured, not planned\n" in outcome.out
    assert json.loads(document)["ort_peak_bytes"] >= 0
