"""Updates run as soon as they may, and what that saves."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from graphs import floats, lines, parse

import gradtool as gt
from gradtool.graph.stages import stage
from gradtool.passes.fetch import fetch
from gradtool.passes.update_order import mark_updates, update_early

CHAIN = """g (float[1, 8] x, float[8, 8] a, float[8, 8] b, float[8, 8] c) => (y) {
    p = MatMul (x, a) q = MatMul (p, b) r = MatMul (q, c) y = ReduceSum <keepdims = 0> (r)
}"""
ALGORITHM = """algorithm () => (float[8, 8] a2, float[8, 8] b2, float[8, 8] c2) {
    da, db, dc = ai.onnx.preview.training.Gradient <xs = ["a", "b", "c"], y = "s"> (a, b, c)
    a2 = Sub (a, da) b2 = Sub (b, db) c2 = Sub (c, dc)
}"""
STEP = """g (float[2, 3] x, float[3] w, float[3] v, int64 n) => (loss, w2, v2, n2) {
    h = Mul (x, w) loss = ReduceSum <keepdims = 0> (h) late = Neg (w)
    dw = ReduceSum <keepdims = 0> (x, axis) k = Exp (late)
    one = Constant <value_int = 1> () n2 = Add (n, one)
    kept = Mul (v, half) v2 = Add (kept, dw) w2 = Sub (w, v2)
}"""


def trained(optimizer: str) -> ir.Model:
    return gt.grad(parse(CHAIN, "a b c"), loss="y", optimizer=optimizer).model


def at_the_end(model: ir.Model) -> ir.Model:
    """The same with all updates behind the last gradient."""
    model = model.clone()
    updates = [node for node in model.graph if stage(node) == "update"]
    model.graph.remove(updates)
    model.graph.extend(updates)
    return model


def test_an_update_follows_its_gradient():
    behind = lines(trained("sgd"))[6:]

    assert behind == [
        "MatMul_2/grad/Gemm:0 = Gemm (ReduceSum/grad/Expand:0, c)",
        "c_grad = Gemm (q, ReduceSum/grad/Expand:0)",
        "c_next = SgdUpdate (c, c_grad, lr, , )",
        "MatMul_1/grad/Gemm:0 = Gemm (MatMul_2/grad/Gemm:0, b)",
        "b_grad = Gemm (p, MatMul_2/grad/Gemm:0)",
        "b_next = SgdUpdate (b, b_grad, lr, , )",
        "a_grad = Gemm (x, MatMul_1/grad/Gemm:0)",
        "a_next = SgdUpdate (a, a_grad, lr, , )",
    ]


def test_gradients_do_not_pile_up():
    """Buffers: x, lr, y, p, q, r and their gradients 64 bytes, a, b, c and theirs 256.

    Always there: x, lr, a, b, c and dr, which is a constant: 960.  Early, the most is alive when
    c is updated, by a block as large as its gradient: y, p, dq, c_grad and the block,
    960 + 3 · 64 + 2 · 256 = 1664.  At the end it is when a is: y, three gradients and the block,
    960 + 64 + 4 · 256 = 2048.
    """
    early = trained("sgd")

    assert gt.plan(early, kernels="numpy").peak == 1664
    assert gt.plan(at_the_end(early), kernels="numpy").peak == 2048


@pytest.mark.sample(3)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", ["cnn", "lstm"])
def test_a_sample_takes_less_memory(name, optimizer):
    model = gt.load(f"samples/{name}.onnx", batch=2)
    early = gt.grad(model, loss="ce:logits", optimizer=optimizer)

    assert gt.plan(early).peak < gt.plan(at_the_end(early.model)).peak


def test_where_an_update_stands_changes_no_bit():
    early = trained("adam")
    expected = gt.run(at_the_end(early), {"x": floats(1, 8)}).outputs
    found = gt.run(early, {"x": floats(1, 8)}).outputs

    assert {n: a.tobytes() for n, a in found.items()} == {
        n: a.tobytes() for n, a in expected.items()
    }


def test_what_reads_no_gradient_goes_right_before_its_reader():
    """Numbers that follow from betas and the count of steps stand before the first update."""
    nodes = list(trained("adamw").graph)
    numbers = [n for n in nodes if stage(n) == "update" and n.op_type != "AdamUpdate"]
    first = next(n for n in nodes if n.op_type == "AdamUpdate")
    there = nodes.index(first)

    assert len(numbers) > 3
    assert nodes[there - len(numbers) : there] == numbers


def loaded() -> ir.Model:
    """A training step as a file may hold it: marked as far as its gradient, updates anywhere."""
    text = STEP.replace("=> (loss", "=> (k, loss").replace("int64 n)", "int64 n, float[3] half)")
    model = parse(text.replace("half) =>", "half, int64[1] axis) =>"), "w v half")
    for name, array in (("n", np.int64(0)), ("axis", np.array([0]))):
        (value,) = (v for v in model.graph.inputs if v.name == name)
        model.graph.inputs.remove(value)
        value.const_value = ir.Tensor(np.asarray(array), name=name)
        model.graph.register_initializer(value)
    state = {"w": "w2", "v": "v2", "n": "n2"}
    model.metadata_props["gradtool.state"] = json.dumps(state)
    for node in model.graph:
        backward = node.outputs[0].name == "dw"
        node.metadata_props["gradtool.stage"] = "backward" if backward else "forward"
    return model


def test_what_serves_updates_alone_is_one():
    model = loaded()
    mark_updates(model)
    marked = {n.outputs[0].name for n in model.graph if stage(n) == "update"}

    assert marked == {"one", "n2", "kept", "v2", "w2"}


def test_a_next_value_waits_for_those_who_read_the_old_one():
    """w2 would overwrite w before `late` has read it; v2 runs right after dw."""
    model = loaded()
    (late,) = (n for n in model.graph if n.outputs[0].name == "late")
    mark_updates(model)
    model.graph.remove(late)
    (k,) = (n for n in model.graph if n.outputs[0].name == "k")
    model.graph.insert_before(k, late)
    update_early(model)
    names = [n.outputs[0].name for n in model.graph]

    assert names == ["h", "loss", "dw", "kept", "v2", "late", "w2", "k", "one", "n2"]


def test_a_graph_without_updates_stays_as_it_is():
    model = gt.grad(parse(CHAIN, "a b c"), loss="y").model
    before = lines(model)

    assert update_early(model) == 0
    assert lines(model) == before


def test_only_asked_for_gradients_are_computed_as_results():
    """A gradient that nobody returns is still there to be fetched."""
    model = fetch(trained("sgd"), ["b_grad"])
    found = gt.run(model, {"x": floats(1, 8)}).outputs
    expected = gt.run(gt.grad(parse(CHAIN, "a b c"), loss="y"), {"x": floats(1, 8)}).gradients

    np.testing.assert_array_equal(found["b_grad"], expected["b"])


def test_a_training_algorithm_updates_early_too(tmp_path):
    """Its gradients are results when it is loaded; a step that returns none lets them go."""
    text = CHAIN.replace(" y = ", " s = ").replace("=> (y)", "=> (float s)")
    header = '<ir_version: 10, opset_import: ["" : 20, "ai.onnx.preview.training" : 1]>\n'
    proto = onnx.parser.parse_model(header + text)
    del proto.graph.input[1:]
    for seed, name in enumerate("abc"):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(floats(8, 8, seed=seed), name))
    info = proto.training_info.add()
    info.algorithm.CopyFrom(onnx.parser.parse_graph(ALGORITHM))
    for name in "abc":
        info.update_binding.add(key=name, value=f"{name}2")
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    model = gt.load(tmp_path / "m.onnx")
    step = fetch(model, ["s", "a2", "b2", "c2"])
    produced = {v.name: i for i, n in enumerate(step.graph) for v in n.outputs}

    assert set(gt.run(model, {"x": floats(1, 8)}).gradients) == set("abc")
    assert produced["dc"] < produced["c2"] < produced["db"] < produced["b2"] < produced["da"]
    assert gt.plan(step).peak < gt.plan(at_the_end(step)).peak
