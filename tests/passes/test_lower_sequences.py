"""Sequences of known structure become tensors; the others stay."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from graphs import floats, lines, parse, stock

import gradtool as gt
from gradtool.emit.builder import Builder
from gradtool.graph.prune import prune
from gradtool.passes.lower_sequences import lower_sequences
from gradtool.shapes import infer


def lowered(body: str, count: int = 1):
    text = f"g (float[4, 6] x, int64 i, float[4, 6] z) => (y) {{ {body} }}"
    before, model = parse(text), parse(text)
    made = lower_sequences(Builder(model))
    prune(model)
    infer(model)

    assert made == count
    return before, model


CASES = {
    "at": """
        one = Constant <value = int64 {1}> ()
        s = SequenceConstruct (x, z) y = SequenceAt (s, one)""",
    "concat": "s = SequenceConstruct (x, z, x) y = ConcatFromSequence <axis = 1> (s)",
    "stack": """
        s = SequenceConstruct (x, z) y = ConcatFromSequence <axis = -1, new_axis = 1> (s)""",
    "insert at a position": """
        k = Constant <value = int64 {0}> ()
        e = SequenceEmpty () s = SequenceInsert (e, x) t = SequenceInsert (s, z, k)
        y = ConcatFromSequence <axis = 0> (t)""",
    "erase": """
        k = Constant <value = int64 {-2}> ()
        s = SequenceConstruct (x, z, x) t = SequenceErase (s, k)
        y = ConcatFromSequence <axis = 0> (t)""",
    "split evenly": """
        k = Constant <value = int64 {2}> () n = Constant <value = int64 {-1}> ()
        s = SplitToSequence <axis = 1> (x, k) y = SequenceAt (s, n)""",
    "split with a rest": """
        k = Constant <value = int64 {4}> () n = Constant <value = int64 {1}> ()
        s = SplitToSequence <axis = 1> (x, k) y = SequenceAt (s, n)""",
    "split into given sizes": """
        k = Constant <value = int64[3] {1, 3, 2}> () n = Constant <value = int64 {1}> ()
        s = SplitToSequence <axis = 1> (x, k) y = SequenceAt (s, n)""",
    "unbind": """
        n = Constant <value = int64 {3}> ()
        s = SplitToSequence <axis = 0, keepdims = 0> (x) y = SequenceAt (s, n)""",
    "length": "s = SequenceConstruct (x, z, x) y = SequenceLength (s)",
    "map": """
        s = SequenceConstruct (x, z)
        t = SequenceMap <body = b (float[4, 6] e) => (f) { q = Tanh (e) f = Mul (q, z) }> (s)
        y = ConcatFromSequence <axis = 0> (t)""",
    "optional": "o = Optional (x) y = OptionalGetElement (o)",
    "optional that is there": "o = Optional (x) y = OptionalHasElement (o)",
    "a tensor is there": "y = OptionalHasElement (x)",
}


@pytest.mark.parametrize("name", CASES)
def test_known_structure(name):
    before, after = lowered(CASES[name])
    feeds = {"x": floats(4, 6), "z": floats(4, 6, seed=1), "i": np.asarray(0)}
    known = {v.name for v in before.graph.inputs}
    wanted = {k: v for k, v in feeds.items() if k in known}

    assert not any("equence" in n.op_type or "Optional" in n.op_type for n in after.graph)
    assert (stock(before, **wanted)["y"] == stock(after, **wanted)["y"]).all()


def test_nothing_is_left_of_an_optional_value_that_is_there():
    _, after = lowered(CASES["optional"])

    assert lines(after) == ["y = Identity (x)"]


@pytest.mark.parametrize(
    "body",
    [
        "s = SequenceConstruct (x, z) y = SequenceAt (s, i)",
        """s = SequenceConstruct (x, z) t = SequenceErase (s, i)
           y = ConcatFromSequence <axis = 0> (t)""",
        "s = SplitToSequence (x, i) y = ConcatFromSequence <axis = 0> (s)",
    ],
)
def test_positions_that_are_not_known(body):
    _, after = lowered(body, 0)

    assert any("equence" in n.op_type for n in after.graph)


def test_a_sequence_in_a_branch():
    body = """m = ReduceMax <keepdims = 0> (x) zero = Constant <value_float = 0> ()
        n = Constant <value = int64 {0}> ()
        c = Greater (m, zero)
        s = SequenceConstruct (x, z)
        y = If (c) <
           then_branch = t () => (a) { a = SequenceAt (s, n) },
           else_branch = e () => (b) {
              r = SequenceInsert (s, x) b = ConcatFromSequence <axis = 0> (r)
           }
        >"""
    _, after = lowered(body, 2)

    assert not any("equence" in n.op_type for n in after.graph.all_nodes())


def test_an_open_size_is_read_off_a_tensor_not_off_a_sequence_of_such():
    """The size of a part is known by the part alone, not by the sequence it was taken from."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
    g (float[4, 3] x, int64 i) => (float[n, 3] y)
        <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}, int64[3] sizes = {1, 2, 1}> {
        a = MatMul (x, w)
        s = SplitToSequence <axis = 0> (a, sizes)
        y = SequenceAt (s, i)
    }""")
    training = gt.grad(gt.load(model), loss="mean:y", wrt=["w"])
    shapes = [n for n in training.model.graph if n.op_type == "Shape"]
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "i": np.int64(1)}

    assert all(isinstance(v.type, ir.TensorType) for n in shapes for v in n.inputs)
    found = gt.run(training, feeds).gradients["w"]
    np.testing.assert_allclose(found, np.repeat(feeds["x"][1:3].sum(0)[:, None] / 6, 3, axis=1))
