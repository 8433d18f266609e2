import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from clones import recompute
from graphs import floats, parse

import gradtool as gt
from gradtool.ops.composites.calls import inline
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


@pytest.mark.exhaustive
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
        "enable_mem_pattern": False,
        "enable_mem_reuse": False,
        "execution_order": "PRIORITY_BASED",
        "graph_optimization_level": "ORT_DISABLE_ALL",
    }
    opened = session(str(tmp_path / "m.onnx"), options)
    assert opened.run(["h0_grad"], {"h0": floats(8)})[0].shape == (8,)


def test_a_file_with_barriers_names_those_that_take_least(tmp_path):
    training = chain(8)
    model = recomputed(training)
    gt.save(model, tmp_path / "plain.onnx")
    again = gt.load(tmp_path / "plain.onnx")
    gt.save(again, tmp_path / "barred.onnx", barrier=True)
    gt.save(training, tmp_path / "keep.onnx")

    barred, keep = (ir.load(tmp_path / f"{name}.onnx") for name in ("barred", "keep"))
    options = json.loads(barred.metadata_props["gradtool.load"])
    assert options == {"enable_mem_pattern": False, "enable_mem_reuse": False}
    said = "options.enable_mem_pattern = False, options.enable_mem_reuse = False"
    assert how_to_load(barred) == how_to_load(model, barrier=True)
    assert how_to_load(barred) == f"stock onnxruntime takes least with {said}"
    assert "gradtool.load" not in keep.metadata_props
    assert how_to_load(keep) == ""


def test_people_are_told_the_options():
    said = how_to_load(recomputed(chain(8)))

    assert said == (
        "stock onnxruntime merges recomputed nodes with the originals unless it is loaded as "
        "InferenceSession(path, options, disabled_optimizers=['CommonSubexpressionElimination']) "
        "with options.enable_mem_pattern = False, options.enable_mem_reuse = False, "
        "options.execution_order = ExecutionOrder.PRIORITY_BASED, "
        "options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL; "
        "a file with barriers keeps them at any options"
    )


@pytest.mark.exhaustive
def test_what_is_allocated_at_once_is_measured_beside_the_plan():
    training = chain()
    model = recomputed(training)

    found = gt.run(model, {"h0": floats(SIZE)}, engine="ort", measure=True)

    plan = gt.plan(model, kernels="numpy")
    held = sum(b.bytes for b in plan.buffers if b.region in ("inputs", "constants"))
    assert found.ort_planned_bytes == plan.beside_given == plan.total - held
    assert held >= 4 * MIB
    if found.ort_live_bytes is None:
        pytest.skip("this system does not reset the high-water mark of a process")
    assert 0.9 * plan.beside_given < found.ort_live_bytes < 1.5 * plan.beside_given


@pytest.mark.exhaustive
def test_the_command_prints_what_was_measured_beside_the_plan(run, tiny_model, tiny_inputs):
    outcome = run("run", tiny_model, "--inputs", tiny_inputs, "--engine", "ort", "--measure")
    document = json.loads(run("run", tiny_model, "--inputs", tiny_inputs, "--engine", "ort",
                              "--measure", "--format", "json").out)  # fmt: skip

    assert outcome.code == 0
    if "ort_live_bytes" not in document:
        pytest.skip("this system does not reset the high-water mark of a process")
    assert "measured, what is allocated at once\n" in outcome.out
    assert "for our executor: not measured\n" in outcome.out
    assert document["ort_planned_bytes"] > 0


@pytest.mark.exhaustive
def test_the_command_says_that_the_peak_is_measured(run, tiny_model, tiny_inputs):
    outcome = run("run", tiny_model, "--inputs", tiny_inputs, "--engine", "ort")
    document = run("run", tiny_model, "--inputs", tiny_inputs, "--engine", "ort", "--format",
                   "json").out  # fmt: skip

    assert outcome.code == 0
    if "ort_peak_bytes" not in document:
        pytest.skip("this system does not reset the high-water mark of a process")
    assert "beside inputs and weights: measured, the high-water mark\n" in outcome.out
    assert json.loads(document)["ort_peak_bytes"] >= 0
