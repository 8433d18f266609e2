from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from conftest import build
from onnx import TensorProto, helper

import gradtool as gt
from gradtool.program.flatten import flatten
from gradtool.program.kinds import KEPT_BYTES
from gradtool.shapes import folding


def load(tmp_path, proto: onnx.ModelProto | str, **weights) -> ir.Model:
    path = tmp_path / "model.onnx"
    proto = build(proto, **weights) if isinstance(proto, str) else proto
    path.write_bytes(proto.SerializeToString())
    return gt.load(path)


def known(model: ir.Model) -> dict[str, object]:
    """What is known of the values of a model, by name."""
    values = (v for node in model.graph for v in node.outputs)
    return {v.name: v.const_value.numpy().tolist() for v in values if v.const_value is not None}


def shape(model: ir.Model) -> list[int | str]:
    return [d if isinstance(d, int) else str(d) for d in model.graph.outputs[0].shape]


# The results of these decide the size of y: [k] zeros, or the rows and columns that they say.
SIZES = {
    "Mod": "a = Mod (seven, three) n = Reshape (a, one)",
    "Range": "a = Range (zero, seven, three) n = Shape (a)",
    "Where": "c = Less (three, seven) a = Where (c, three, seven) n = Reshape (a, one)",
    "NonZero": "a = Range (zero, seven, uno) b = Mod (a, three) c = NonZero (b) "
               "n = Shape <start = 1> (c)",
    "CumSum": "a = Range (uno, three, uno) b = CumSum (a, zero) n = Slice (b, last, end)",
    "Tile": "a = Tile (two, two) n = ReduceSum <keepdims = 1> (a)",
    "OneHot": "a = OneHot (two, three, vec) b = ArgMax <axis = 1> (a) n = Reshape (b, one)",
    "TopK": "a = Range (zero, seven, three) v, i = TopK (a, one) n = Identity (v)",
    "Size": "a = Expand (zero, vec) b = Size (a) n = Reshape (b, one)",
    "ScatterElements": "a = ScatterElements (vec, first, two) n = Slice (a, first, one)",
    "Cast": "f = Cast <to = 1> (seven) g = Cast <to = 1> (three) d = Div (f, g) c = Ceil (d) "
            "i = Cast <to = 7> (c) n = Reshape (i, one)",
    "If": "c = Less (three, seven) n = If (c) <then_branch = g () => (int64[1] t) "
          "{t = Identity (two)}, else_branch = h () => (int64[2] e) {e = Identity (vec)}>",
    "Compress": "c = Equal (vec, two) n = Compress <axis = 0> (vec, c)",
    "Trilu": "a = Expand (uno, square) b = Trilu <upper = 1> (a) c = NonZero (b) "
             "n = Shape <start = 1> (c)",
    "StringEqual": "c = Equal (word, word) a = Cast <to = 7> (c) n = Add (a, two)",
}  # fmt: skip
NUMBERS = """<int64 zero = {0}, int64 uno = {1}, int64 three = {3}, int64 seven = {7},
  int64[1] one = {1}, int64[1] two = {2}, int64[1] first = {0}, int64[1] last = {-1},
  int64[1] end = {9}, int64[2] vec = {2, 5}, int64[2] square = {3, 3}, string[1] word = {"a"}>"""


@pytest.mark.parametrize("name", SIZES)
def test_a_size_that_follows_from_constants_is_known(name, tmp_path):
    text = f"g (float[1] x) => (float[k] y) {NUMBERS} {{ {SIZES[name]} y = Expand (x, n) }}"
    model = load(tmp_path, text)
    found = gt.run(model, {"x": np.ones(1, np.float32)}).outputs["y"]
    program = flatten(model)

    assert shape(model) == list(found.shape)
    assert not any(map(program.is_dynamic, program.steps))


def test_what_a_run_gives_is_what_was_folded(tmp_path):
    """Floats are divided as floats, integers towards zero."""
    text = """g (float[2] x) => (float[2] y) <int64 a = {-7}, int64 b = {2}, float half = {0.5}> {
        i = Div (a, b) f = Cast <to = 1> (a) q = Cast <to = 1> (b) d = Div (f, q)
        m = Mul (d, half) y = Add (x, m)
    }"""

    assert known(load(tmp_path, text)) == {"i": -3, "f": -7.0, "q": 2.0, "d": -3.5, "m": -1.75}


def test_nothing_that_may_be_trained_is_folded(tmp_path):
    text = (
        "g (float[3] x) => (y) { a = Neg (w) b = Shape (a) c = Cast <to = 7> (w) y = Mul (x, a) }"
    )
    model = load(tmp_path, text, w=np.arange(3, dtype=np.float32))

    assert known(model) == {"b": [3]}


def test_a_scalar_is_folded_unless_it_is_asked_for(tmp_path):
    text = "g (float[3] x) => (y) <float s = {2}> { a = Neg (s) b = Mul (x, a) y = Tanh (b) }"
    model = load(tmp_path, text)
    x = np.ones(3, np.float32)
    constant = gt.grad(model, loss="sum:y", input_grad=["x"], wrt=[])
    trained = gt.grad(model, loss="sum:y", wrt=["s"], optimizer="sgd")

    assert known(model) == {"a": -2.0}
    assert "a" in known(constant.model)
    assert "a" not in known(trained.model)
    gt.save(trained, tmp_path / "step.onnx")
    again = gt.load(tmp_path / "step.onnx")
    assert "a" not in known(again)
    assert gt.run(again, {"x": x, "lr": np.float32(1)}).outputs["s_next"] == pytest.approx(
        2 + 3 * (1 - np.tanh(2.0) ** 2), rel=1e-5
    )


def test_what_draws_at_random_is_not_folded(tmp_path):
    model = load(
        tmp_path,
        """g (float[3] x) => (y) <float p = {0.5}, bool on = {1}> {
            a = RandomUniform <shape = [3], seed = 1.0> () b = Neg (p) k = Expand (b, n)
            d, mask = Dropout <seed = 1> (k, p, on) c = Add (a, d) y = Add (x, c)
        }""",
        n=np.array([3]),
    )

    assert set(known(model)) == {"b", "k"}


def test_a_large_mask_is_known_only_while_sizes_are_inferred(tmp_path):
    """Its 5050 pairs are: they are no sizes, and a program does not hold them."""
    model = load(
        tmp_path,
        """g (float[100, 100] x) => (y) <int64[2] s = {100, 100}, float o = {1}, int64 z = {0}> {
            a = Expand (o, s) b = Trilu <upper = 1> (a) c = NonZero (b)
            d = Transpose <perm = [1, 0]> (c) y = GatherND (x, d)
        }""",
    )
    program = flatten(model)

    assert shape(model) == [5050]
    assert known(model) == {}
    assert not any(map(program.is_dynamic, program.steps))
    assert all(array.nbytes <= KEPT_BYTES for array in program.constants.values())


def test_a_known_value_that_no_step_reads_takes_no_bytes(tmp_path):
    model = load(
        tmp_path,
        """g (float[2, 8] x) => (y) <float a = {1}, float b = {2}> {
            c = Add (a, b) d = Mul (c, b) y = Mul (x, d)
        }""",
    )

    assert [v.name for v in flatten(model).values] == ["x", "d", "y"]


def test_a_known_value_of_many_bytes_is_computed_when_it_is_needed(tmp_path):
    model = load(
        tmp_path,
        "g (float[512] x) => (y) <float a = {1}> { c = Expand (a, n) y = Mul (x, c) }",
        n=np.array([512]),
    )
    found = {v.name: v.kind for v in flatten(model).values}

    assert found == {"x": "input", "a": "constant", "n": "host", "c": "activation", "y": "output"}


def test_an_operator_may_take_so_many_bytes_and_no_more(tmp_path, monkeypatch):
    text = """g (float[1] x) => (y) <float o = {1}> {
        a = Expand (o, n) b = NonZero (a) y = Cast <to = 1> (b)
    }"""
    few = load(tmp_path, text, n=np.array([1000]))
    many = load(tmp_path, text, n=np.array([2**25]))
    monkeypatch.setattr(folding, "FOLDED_BYTES", 1000)
    none = load(tmp_path, text, n=np.array([1000]))

    assert shape(few) == [1, 1000]
    assert [str(d) for d in shape(many)] == [str(d) for d in shape(none)] == ["1", "_d0"]


def test_all_of_a_graph_may_take_so_many_bytes(tmp_path, monkeypatch):
    """Expand moves 4012 bytes; Neg 8000, and 1000 operations count as 62."""
    monkeypatch.setattr(folding, "FOLDED_BYTES", folding.SHARE * 9000)
    steps = " ".join(f"a{i} = Neg (a{i - 1})" for i in range(1, 100))
    text = (
        f"g (float[1] x) => (y) <float o = {{1}}> {{ a0 = Expand (o, n) {steps} y = Add (x, a99) }}"
    )
    model = load(tmp_path, text, n=np.array([1000]))

    assert len(known(model)) == 1 + (folding.SHARE * 9000 - 4012) // 8062


def test_much_arithmetic_is_left_to_a_run(tmp_path):
    text = """g (float[1] x) => (y) <float o = {1}, int64[2] s = {500, 500}> {
        a = Expand (o, s) b = MatMul (a, a) c = NonZero (b) y = Cast <to = 1> (c)
    }"""

    assert str(shape(load(tmp_path, text))[1]).startswith("_d")


def test_what_cannot_be_computed_is_left_to_a_run(tmp_path):
    text = """g (float[1] x) => (y) <string[1] word = {"two"}> {
        a = Cast <to = 7> (word) b = Cast <to = 1> (a) y = Add (x, b)
    }"""

    assert known(load(tmp_path, text)) == {}


def test_sizes_bound_later_are_folded_then(tmp_path):
    text = """g (float[n] x) => (y) <float two = {2}> {
        s = Shape (x) f = Cast <to = 1> (s) d = Div (f, two) c = Ceil (d) i = Cast <to = 7> (c)
        z = ConstantOfShape <value = float[1] {1}> (i) y = Mul (z, two)
    }"""
    model = load(tmp_path, text)

    assert shape(gt.load(tmp_path / "model.onnx", dims={"n": 5})) == [3]
    assert gt.plan(model, dims={"n": 5}).program.values[-1].spec.shape == (3,)


def test_constants_of_a_body_are_folded(tmp_path):
    text = """g (float[4] x, int64 n) => (float[4] y) <int64 two = {2}, bool true = {1}> {
        y = Loop (n, true, x) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] w) {
            d = Identity (c) k = Mul (two, two) r = Reshape (k, one) e = Expand (v, r)
            w = Tanh (e)
        }>
    }"""
    model = load(tmp_path, text, one=np.array([1]))
    body = model.graph[-1].attributes["body"].as_graph()

    assert {v.name for n in body for v in n.outputs if v.const_value is not None} == {"k", "r"}


def branches(condition: str) -> onnx.ModelProto:
    """Squeezes an axis if its size is one; the other branch cannot run."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    one = helper.make_tensor("one", TensorProto.INT64, [], [1])
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [0])
    squeeze = helper.make_graph(
        [helper.make_node("Squeeze", ["x", "axes"], ["t"])], "then", [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )  # fmt: skip
    keep = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["e"], name="same")], "else", [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
        [helper.make_tensor("w", TensorProto.FLOAT, [], [2.0])],
    )  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], end=1),
        helper.make_node("Squeeze", ["s"], ["k"]),
        helper.make_node("Equal", ["k", "one"], ["c"]),
        helper.make_node("If", [condition], ["z"], then_branch=squeeze, else_branch=keep),
        helper.make_node("Tanh", ["z"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [one, axes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_branch_that_is_never_taken_is_not_looked_at(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(branches("c").SerializeToString())
    model = gt.load(path, dims={"n": 4})
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    made = gt.grad(model, loss="sum:y", wrt=[], input_grad=["x"])

    assert "If" not in {node.op_type for node in model.graph}
    assert shape(model) == [4, 3]
    assert gt.run(made, {"x": x}).gradients["x"] == pytest.approx(
        2 * (1 - np.tanh(2 * x) ** 2), rel=1e-5
    )


def test_a_condition_of_open_sizes_is_decided_when_they_are_bound(tmp_path):
    model = load(tmp_path, branches("c"))
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)

    assert "If" in {node.op_type for node in model.graph}
    assert gt.run(model, {"x": x}).outputs["y"] == pytest.approx(np.tanh(2 * x), rel=1e-5)
    assert gt.run(model, {"x": x[:1]}).outputs["y"].shape == (3,)
    assert gt.plan(model, dims={"n": 4}).program.values[-1].spec.shape == (4, 3)
