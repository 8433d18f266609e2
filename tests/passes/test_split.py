"""A whole training graph and its two halves compute the same bits."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from graphs import floats, parse

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.ops.composites.calls import inline
from gradtool.passes.split import split

GRAPHS = {
    "dense": (
        """g (float[N, 4] x, float[4, 3] w, float[3] b) => (y) {
            h = MatMul (x, w) s = Add (h, b) y = Tanh (s)
        }""",
        "w b",
    ),
    "norm": (
        """g (float[N, 4] x, float[4] w, float[4] b) => (y) {
            h = LayerNormalization (x, w, b) s = Softmax (h) t = Mul (s, s) y = Exp (t)
        }""",
        "w b",
    ),
    "training norm": (
        """g (float[N, 3, 2, 2] x, float[3] w, float[3] b, float[3] m, float[3] v) => (y) {
            h = BatchNormalization (x, w, b, m, v) r = Relu (h) y = GlobalAveragePool (r)
        }""",
        "w b m v",
    ),
    "shapes": (
        """g (float[N, 4] x, float[1, 4] w) => (y) {
            h = Mul (x, w) s = ReduceSum <keepdims = 0> (h) e = Exp (s) y = Neg (e)
        }""",
        "w",
    ),
    "lstm": (
        """g (float[5, N, 3] x, float[1, 8, 3] w, float[1, 8, 2] r) => (y) {
            h = LSTM <hidden_size = 2> (x, w, r) y = Tanh (h)
        }""",
        "w r",
    ),
    "layouts": (
        """g (float[N, 40, 24] x, float[24, 72] w, float[24] b)
            => (y) <int64[4] heads = {0, 0, 2, 12}> {
            q, k, v = Split <axis = 2, num_outputs = 3> (p)
            s = Add (q, b)
            sh = Reshape (s, heads) kh = Reshape (k, heads)
            st = Transpose <perm = [0, 2, 1, 3]> (sh) kt = Transpose <perm = [0, 2, 3, 1]> (kh)
            a = MatMul (st, kt) e = Exp (a) r = ReduceMean <keepdims = 0> (e) y = Mul (r, v)
        }""".replace("            q, k", "            p = MatMul (x, w) q, k"),
        "w b",
    ),
    "control": (
        """g (float[N, 4] x, float[4] w, bool c) => (y) {
            h = Mul (x, w) e = Exp (h) y = If (c) <
                then_branch = t () => (float[N, 4] p) { p = Mul (e, h) },
                else_branch = f () => (float[N, 4] q) { q = Neg (h) }
            >
        }""",
        "w",
    ),
}


@pytest.fixture(params=GRAPHS)
def training(request):
    text, weights = GRAPHS[request.param]
    mode = request.param == "training norm"
    return gt.grad(parse(text, weights), loss="mean:y", loss_seed=True, train_mode=mode)


def feeds(model: ir.Model, known: dict) -> dict:
    """Inputs of a model: those known, else drawn."""
    drawn = {}
    for value in model.graph.inputs:
        shape = [3 if not isinstance(d, int) else d for d in value.shape]
        drawn[value.name] = known.get(value.name)
        if drawn[value.name] is None:
            drawn[value.name] = (
                np.array(True) if value.dtype == ir.DataType.BOOL else floats(*shape, seed=5)
            )
    return drawn


def stock(model: ir.Model, given: dict) -> dict[str, np.ndarray]:
    """All outputs in onnxruntime, which is kept from merging nodes across the cut."""
    ort = pytest.importorskip("onnxruntime")
    model = model.clone()
    inline(model)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


def ours(model: ir.Model, given: dict) -> dict[str, np.ndarray]:
    result = gt.run(model, given)
    names = json.loads(model.metadata_props["gradtool.gradients"])
    return {**result.outputs, **{names[v]: g for v, g in result.gradients.items()}}


@pytest.mark.sample(4)
@pytest.mark.parametrize("engine", [ours, stock])
def test_the_halves_compute_the_bits_of_the_whole(training, engine):
    halves = split(training.model)
    given = feeds(training.model, {})
    whole = engine(training.model, given)
    first = engine(halves.forward, {v.name: given[v.name] for v in halves.forward.graph.inputs})
    second = engine(
        halves.backward, {v.name: (given | first)[v.name] for v in halves.backward.graph.inputs}
    )

    assert set(first) | set(second) >= set(whole)
    assert set(second) == set(training.gradients.values())
    for name, array in whole.items():
        np.testing.assert_array_equal((first | second)[name], array, err_msg=name)


def test_only_what_crosses_is_saved(training):
    halves = split(training.model)
    produced = {v.name for node in halves.forward.graph for v in node.outputs}
    taken = {v.name for v in halves.backward.graph.inputs}
    read = {v.name for node in halves.backward.graph for v in node.inputs if v is not None}

    assert set(halves.saved) <= produced & taken
    assert set(halves.saved) == {v.name for v in halves.backward.graph.inputs} & produced
    assert taken <= read | {v for v in taken if _is_captured(halves.backward, v)}
    stages = {n.metadata_props["gradtool.stage"] for n in halves.backward.graph}
    assert stages <= {"backward"}


def _is_captured(model: ir.Model, name: str) -> bool:
    return any(v is not None and v.name == name for n in model.graph.all_nodes() for v in n.inputs)


def test_a_shape_is_saved_in_place_of_a_tensor():
    """The sum needs the shape of h, which is that of nothing else."""
    text = """g (float[N, 4] x, float[4, 3] w) => (y) {
        h = MatMul (x, w) y = ReduceSum <keepdims = 0> (h)
    }"""
    halves = split(gt.grad(parse(text, "w"), loss="y", loss_seed=True).model)
    saved = [v for v in halves.backward.graph.inputs if v.name in halves.saved]

    assert [v.dtype for v in saved] == [ir.DataType.INT64]
    assert {v.name for v in halves.backward.graph.inputs} == {"x", "y_grad", saved[0].name}


def test_another_layout_of_a_value_is_not_saved_beside_it():
    halves = split(gt.grad(parse(*GRAPHS["layouts"]), loss="mean:y", loss_seed=True).model)

    assert not {"sh", "kh", "st"} & set(halves.saved)
    assert {"st_again", "kt_again"} & {v.name for n in halves.backward.graph for v in n.outputs}


def test_a_size_is_read_off_what_is_there_anyway():
    text = """g (float[N, 4] x, float[4] w) => (y) {
        h = Mul (x, w) e = Exp (h) n = Neg (e) y = ReduceSum <keepdims = 0> (n)
    }"""
    halves = split(gt.grad(parse(text, "w"), loss="y", loss_seed=True).model)

    assert halves.saved == ("e",)


def test_inputs_that_only_one_half_reads_are_only_there():
    training = gt.grad(parse(*GRAPHS["dense"]), head_grads=True, grad_buffers=True)
    halves = split(training.model)

    assert [v.name for v in halves.forward.graph.inputs] == ["x"]
    assert [v.name for v in halves.backward.graph.inputs] == [
        "x", "y_grad", "w_grad_in", "b_grad_in", "y",
    ]  # fmt: skip
    assert "gradtool.buffers" in halves.backward.metadata_props
    assert "gradtool.buffers" not in halves.forward.metadata_props


def test_running_statistics_are_of_the_forward_half():
    training = gt.grad(
        parse(*GRAPHS["training norm"]), loss="mean:y", loss_seed=True, train_mode=True
    )
    halves = split(training.model)
    state = json.loads(halves.forward.metadata_props["gradtool.state"])

    assert set(state) == {"m", "v"}
    assert set(state.values()) <= {v.name for v in halves.forward.graph.outputs}
    assert "gradtool.state" not in halves.backward.metadata_props


def test_the_seed_scales_every_gradient():
    halves = split(gt.grad(parse(*GRAPHS["dense"]), loss="mean:y", loss_seed=True).model)
    x = floats(3, 4)
    kept = gt.run(halves.forward, {"x": x}).outputs
    given = {v.name: kept.get(v.name, x) for v in halves.backward.graph.inputs}
    one = gt.run(halves.backward, given | {"loss_grad": np.float32(1)}).gradients
    many = gt.run(halves.backward, given | {"loss_grad": np.float32(1024)}).gradients

    for name, gradient in one.items():
        np.testing.assert_array_equal(many[name], 1024 * gradient)


@pytest.mark.sample(3)
def test_halves_survive_a_file(training, tmp_path):
    halves = split(training.model)
    gt.save(halves.forward, tmp_path / "f.onnx")
    gt.save(halves.backward, tmp_path / "b.onnx")
    given = feeds(training.model, {})
    whole = ours(training.model, given)
    forward, backward = gt.load(tmp_path / "f.onnx"), gt.load(tmp_path / "b.onnx")
    first = ours(forward, {v.name: given[v.name] for v in forward.graph.inputs})
    second = ours(backward, {v.name: (given | first)[v.name] for v in backward.graph.inputs})

    for name, array in whole.items():
        np.testing.assert_array_equal((first | second)[name], array, err_msg=name)


def test_the_graph_given_is_left_as_it_is(training):
    before = ir.to_proto(training.model).SerializeToString(deterministic=True)
    split(training.model)

    assert ir.to_proto(training.model).SerializeToString(deterministic=True) == before


def test_a_forward_model_cannot_be_split():
    with pytest.raises(UsageError, match="the model holds no gradients to split off"):
        split(parse(*GRAPHS["dense"]))
