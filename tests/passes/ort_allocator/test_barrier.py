import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from clones import recompute
from conftest import trials
from graphs import floats, gradients, lines, parse
from hypothesis import given, settings
from hypothesis import strategies as st

import gradtool as gt
from gradtool.graph.metadata import BARRIER
from gradtool.graph.stages import has_barriers
from gradtool.ops.composites.calls import inline
from gradtool.passes.ort_allocator.barrier import barrier
from gradtool.passes.ort_allocator.strip_barriers import strip_barriers
from gradtool.workloads.ort_options import session

LAYERS = """g (float[batch, 6] x, float[6, 4] w1, float[4, 4] w2, float[4, 2] w3)
    => (float[batch, 2] y) {
    a1 = MatMul (x, w1)
    h1 = Tanh (a1)
    a2 = MatMul (h1, w2)
    h2 = Sigmoid (a2)
    s2 = Add (h2, h1)
    y = MatMul (s2, w3)
}"""
EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
DROPPED = ("h1", "h2", "s2")
some_values = st.sets(st.sampled_from(["a1", "h1", "a2", "h2", "s2"]))


def chain(length: int, shape: str = "[5]", dtype: str = "float") -> gt.TrainingGraph:
    body = "\n".join(f"h{i} = Tanh (h{i - 1})" for i in range(1, length + 1))
    text = f"g ({dtype}{shape} h0) => ({dtype}{shape} h{length}) {{\n{body}\n}}"
    return gt.grad(parse(text), loss="sum", wrt=["h0"])


def layers() -> gt.TrainingGraph:
    return gt.grad(parse(LAYERS, "w1 w2 w3"), loss="sum")


def written(model: ir.Model) -> ir.Model:
    """A model in standard operators, as files have it."""
    model = model.clone()
    inline(model)
    return model


def optimised(model: ir.Model, path) -> list[str]:
    """The operators that stock onnxruntime runs with its default options."""
    session(_bytes(model), {"optimized_model_filepath": str(path)})
    return [node.op_type for node in onnx.load(path).graph.node]


def stock(model: ir.Model, **feeds) -> dict[str, np.ndarray]:
    """All outputs in stock onnxruntime with its default options."""
    opened = session(_bytes(model), {})
    names = [o.name for o in opened.get_outputs()]
    return dict(zip(names, opened.run(names, feeds), strict=True))


def executed(model: ir.Model, folder, **feeds) -> list[str]:
    """The names of the nodes in the order in which stock onnxruntime runs them by default."""
    profile = {"enable_profiling": True, "profile_file_prefix": str(folder / "profile")}
    opened = session(_bytes(model), profile)
    opened.run(None, feeds)
    events = json.loads(Path(opened.end_profiling()).read_text())
    ends = "_kernel_time"
    return [e["name"].removesuffix(ends) for e in events if e["name"].endswith(ends)]


def _bytes(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString()


def waits(model: ir.Model) -> dict[str, str]:
    """By clone that reads a barrier, the value that the barrier waits for."""
    return {
        node.name: v.producer().metadata_props[BARRIER]
        for node in model.graph
        for v in node.inputs
        if BARRIER not in node.metadata_props and v.producer() is not None
        if BARRIER in v.producer().metadata_props
    }


def test_clones_survive_the_optimiser_of_stock_onnxruntime(tmp_path):
    training = chain(8)
    model = written(recompute(training.model, ["h1", "h2", "h3", "h5", "h6", "h7"]))

    count = barrier(model)

    assert count == 2
    assert optimised(model, tmp_path / "m.onnx").count("Tanh") == 8 + 6
    x = floats(5)
    ours, theirs = gradients(training, h0=x), stock(model, h0=x)
    np.testing.assert_allclose(theirs["h0_grad"], ours["h0"], rtol=1e-5)


def test_clones_run_after_the_gradient_that_they_wait_for(tmp_path):
    model = written(recompute(chain(8).model, ["h1", "h2", "h3", "h5", "h6", "h7"]))
    barrier(model)

    ran = executed(model, tmp_path, h0=floats(5))

    assert ran.index("Tanh_4_mirror") > ran.index("Tanh_7/grad/TanhGrad/Mul_1")
    assert ran.index("Tanh_mirror") > ran.index("Tanh_3/grad/TanhGrad/Mul_1")


def test_without_barriers_it_merges_clones_and_gradients_stay_right(tmp_path):
    training = chain(8)
    model = written(recompute(training.model, ["h1", "h2", "h3", "h5", "h6", "h7"]))

    assert optimised(model, tmp_path / "m.onnx").count("Tanh") == 8
    x = floats(5)
    ours, theirs = gradients(training, h0=x), stock(model, h0=x)
    np.testing.assert_allclose(theirs["h0_grad"], ours["h0"], rtol=1e-5)


def test_gradients_of_layers_with_a_symbolic_batch(tmp_path):
    training = layers()
    model = written(recompute(training.model, DROPPED))

    assert barrier(model) > 0

    kept, run = (optimised(m, tmp_path / "m.onnx") for m in (written(training.model), model))
    for op in ("Tanh", "Sigmoid"):
        assert run.count(op) == kept.count(op) + 1
    for batch in (3, 1, 0):
        x = floats(batch, 6)
        ours, theirs = gradients(training, x=x), stock(model, x=x)
        for value, name in training.gradients.items():
            np.testing.assert_allclose(theirs[name], ours[value], 1e-5, 1e-6, err_msg=value)


def test_a_group_waits_for_the_gradient_that_is_computed_last_before_it():
    model = recompute(chain(8).model, ["h1", "h2", "h3", "h5", "h6", "h7"])

    barrier(model)

    assert waits(model) == {
        "Tanh_4_mirror": "Tanh_7/grad/TanhGrad:0",
        "Tanh_mirror": "Tanh_3/grad/TanhGrad:0",
    }


def test_a_group_waits_for_the_weight_gradients_before_it():
    model = recompute(layers().model, ["h1"])

    barrier(model)

    watched = [n.inputs[0].name for n in model.graph if BARRIER in n.metadata_props
               and n.op_type == "Size"]  # fmt: skip
    assert watched == ["loss", "y", "w3_grad"]


def test_clones_that_do_not_read_each_other_wait_each_for_themselves():
    text = """g (float[5] x) => (float[5] y) {
        a = Tanh (x)
        b = Sigmoid (x)
        y = Mul (a, b)
    }"""
    model = recompute(gt.grad(parse(text), loss="sum", wrt=["x"]).model, ["a", "b"])

    assert barrier(model) == 2
    assert sorted(waits(model)) == ["Sigmoid_mirror", "Tanh_mirror"]


@pytest.mark.parametrize(
    ("declared", "shape"),
    [
        ("", ()),
        ("[1]", (1,)),
        ("[2, 3]", (2, 3)),
        ("[n, 3]", (0, 3)),
        ("[2, 1, 3, 1]", (2, 1, 3, 1)),
    ],
)
def test_values_of_any_rank_pass(declared, shape):
    training = chain(4, declared)
    model = written(recompute(training.model, ["h1", "h2", "h3"]))

    assert barrier(model) == 1
    x = np.asarray(floats(*shape))
    ours, theirs = gradients(training, h0=x), stock(model, h0=x)
    assert theirs["h0_grad"].shape == x.shape
    np.testing.assert_allclose(theirs["h0_grad"], ours["h0"], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float", "double"])
def test_values_of_any_float_type_keep_their_bits(dtype):
    training = chain(4, "[3, 2]", dtype)
    model = recompute(training.model, ["h1", "h2", "h3"])
    (x,) = (v for v in model.graph.inputs if v.name == "h0")
    feeds = {"h0": floats(3, 2).astype(x.dtype.numpy())}
    expected = gt.run(model, feeds).gradients["h0"]

    assert barrier(model) == 1
    assert gt.run(model, feeds).gradients["h0"].tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_stock_onnxruntime_runs_other_float_types(dtype):
    training = chain(4, "[3, 2]", dtype)
    model = written(recompute(training.model, ["h1", "h2", "h3"]))
    (x,) = (v for v in model.graph.inputs if v.name == "h0")
    feeds = {"h0": floats(3, 2).astype(x.dtype.numpy())}

    barrier(model)

    ours, theirs = gradients(training, **feeds), stock(model, **feeds)
    np.testing.assert_allclose(theirs["h0_grad"], ours["h0"], rtol=4e-3, atol=1e-3)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_a_gradient_that_is_no_number_changes_no_shape(odd):
    training = chain(4)
    model = written(recompute(training.model, ["h1", "h2", "h3"]))
    x = floats(5)
    x[0] = odd

    barrier(model)

    np.testing.assert_allclose(
        stock(model, h0=x)["h0_grad"], gradients(training, h0=x)["h0"], rtol=1e-5
    )


def test_what_a_body_captures_passes_a_barrier_too(tmp_path):
    text = """g (float[4] x, bool c) => (float[4] y) {
        k = Tanh (x)
        a = If (c) <
            then_branch = t () => (float[4] u) { u = Exp (k) },
            else_branch = e () => (float[4] v) { v = Sin (k) }
        >
        y = Mul (a, a)
    }"""
    training = gt.grad(parse(text), loss="sum", wrt=["x"])
    model = written(recompute(training.model, ["a"]))
    before = optimised(model, tmp_path / "m.onnx").count("If")

    assert barrier(model) == 1
    assert optimised(model, tmp_path / "m.onnx").count("If") >= before
    (clone,) = (n for n in model.graph if n.name == "If_mirror")
    inner = [v for graph in (a.as_graph() for a in clone.attributes.values()) for n in graph
             for v in n.inputs]  # fmt: skip
    assert all(BARRIER in v.producer().metadata_props for v in inner)
    for c in (True, False):
        feeds = {"x": floats(4), "c": np.array(c)}
        ours, theirs = gradients(training, **feeds), stock(model, **feeds)
        np.testing.assert_allclose(theirs["x_grad"], ours["x"], rtol=1e-5)


def test_clones_of_weights_only_are_said_to_have_no_barrier():
    text = """g (float[4, 3] x, float[4, 5] w) => (float[3, 5] y) {
        t = Transpose <perm = [1, 0]> (x)
        s = Sin (w)
        y = MatMul (t, s)
    }"""
    model = recompute(gt.grad(parse(text, "w"), loss="sum", input_grad=["x"]).model, ["s"])
    said = []

    assert barrier(model, say=said.append) == 0
    (line,) = said
    assert line.endswith("no barrier is before Sin_mirror")
    assert not has_barriers(model)


def test_clones_before_everything_else_are_said_to_have_no_barrier():
    text = """g (float[4] x) => (float[4] y) {
        a = Tanh (x)
        y = Tanh (a)
    }"""
    model = parse(text)
    for node in model.graph:
        node.metadata_props["gradtool.stage"] = "recompute"
    model.graph.node(0).name = "first"
    said = []

    assert barrier(model, say=said.append) == 0
    (line,) = said
    assert line.endswith("barrier is before first")


def test_a_model_without_clones_gets_no_barrier():
    model = layers().model
    before = _bytes(model)

    assert barrier(model) == 0
    assert strip_barriers(model) == 0
    assert _bytes(model) == before


@settings(max_examples=trials(20), **EXAMPLES)
@given(some_values)
def test_stripping_is_the_inverse(dropped):
    model = recompute(layers().model, dropped)
    before = _bytes(model)

    passed = barrier(model) and sum(BARRIER in n.metadata_props and n.op_type == "Shape"
                                    for n in model.graph)  # fmt: skip

    assert strip_barriers(model) == passed
    assert _bytes(model) == before


@settings(max_examples=trials(20), **EXAMPLES)
@given(some_values)
def test_barriers_change_no_bit_of_a_gradient(dropped):
    model = recompute(layers().model, dropped)
    x = floats(3, 6)
    expected = gt.run(model, {"x": x}, kernels="numpy").gradients

    barrier(model)

    found = gt.run(model, {"x": x}, kernels="numpy").gradients
    assert {n: g.tobytes() for n, g in found.items()} == {
        n: g.tobytes() for n, g in expected.items()
    }


def test_a_loaded_file_has_the_plan_that_it_would_have_without(tmp_path):
    model = recompute(layers().model, DROPPED)
    gt.save(model, tmp_path / "plain.onnx")
    gt.save(model, tmp_path / "barred.onnx", barrier=True)
    assert has_barriers(ir.load(tmp_path / "barred.onnx"))

    plain, barred = (gt.load(tmp_path / f"{n}.onnx") for n in ("plain", "barred"))

    assert lines(barred) == lines(plain)
    ours, theirs = (gt.plan(m, dims={"batch": 64}) for m in (barred, plain))
    assert ours.buffers == theirs.buffers
    assert ours.total == theirs.total


LAID_OUT = """g (float[2, 3, 4] x, float[12, 5] w) => (float[2, 5] y) {
    a = Tanh (x)
    all = Shape (a)
    b0 = Constant <value_ints=[0]> () b1 = Constant <value_ints=[1]> ()
    rest = Constant <value_ints=[-1]> ()
    n = Slice (all, b0, b1, b0)
    shape = Concat <axis=0> (n, rest)
    flat = Reshape (a, shape)
    h = Tanh (flat)
    m = MatMul (h, w)
    y = Sigmoid (m)
}"""


@pytest.mark.parametrize(
    "dropped", [("flat", "h"), ("h",), ("shape", "flat", "h"), ("a", "flat", "h")]
)
def test_no_barrier_is_before_a_layout_which_would_be_merged_with_it(dropped, tmp_path):
    training = gt.grad(parse(LAID_OUT, "w"), loss="sum")
    model = written(recompute(training.model, dropped))
    x = floats(2, 3, 4)
    expected = gradients(training, x=x)["w"]

    assert barrier(model) > 0

    barred = {v for n in model.graph if BARRIER in n.metadata_props for v in n.outputs}
    for node in model.graph:
        if node.op_type == "Reshape" and BARRIER not in node.metadata_props:
            assert not barred & set(node.inputs)
    assert optimised(model, tmp_path / "m.onnx").count("Tanh") == 2 + len({"a", "h"} & {*dropped})
    np.testing.assert_allclose(stock(model, x=x)[training.gradients["w"]], expected, rtol=1e-4)


def test_integers_that_may_be_a_shape_pass_by_an_addition_that_is_taken_out_again():
    training = gt.grad(parse(LAID_OUT, "w"), loss="sum")
    model = recompute(training.model, ["shape", "flat", "h"])
    before = _bytes(model)

    barrier(model)

    passing = [n for n in model.graph if n.op_type == "Add" and BARRIER in n.metadata_props
               and n.inputs[0].producer().op_type == "Slice"]  # fmt: skip
    assert len(passing) == 1
    assert strip_barriers(model) > 0
    assert _bytes(model) == before
