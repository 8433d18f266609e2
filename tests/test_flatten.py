from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from clones import recompute
from graphs import floats, parse

import gradtool as gt
from gradtool.errors import MissingData
from gradtool.exec import kernel as registry
from gradtool.flatten import flatten
from gradtool.program import Program


class Absent(ir.Tensor):
    """A tensor whose data file is not there."""

    absent = True

    def numpy(self):
        raise MissingData(f"{self.name}: no data")

    tobytes = numpy


def kinds(program):
    return {v.name: v.kind for v in program.values}


def test_values_are_sorted_by_what_they_are():
    model = parse(
        """g (float[2, 3] x, float[3] w) => (y) <int64[1] axes = {1}, float two = {2},
           int64[2] table = {1, 0}> {
            a = Mul (x, w) b = Mul (a, two) c = Gather <axis = 0> (b, table)
            y = ReduceSum (c, axes)
        }""",
        "w",
    )

    assert kinds(flatten(model)) == {
        "x": "input", "w": "parameter", "axes": "host", "two": "constant", "table": "constant",
        "a": "activation", "b": "activation", "c": "activation", "y": "output",
    }  # fmt: skip


def test_what_inference_knows_is_not_computed():
    model = parse("g (float[2, 3] x) => (y) { s = Shape (x) r = Reshape (x, s) y = Exp (r) }")

    assert [s.op for s in flatten(model).steps] == ["Exp"]


def test_dead_nodes_are_left_out():
    model = parse("g (float[3] x) => (y) { a = Exp (x) b = Neg (a) y = Tanh (x) }")

    assert [s.op for s in flatten(model).steps] == ["Exp", "Tanh"]


def test_absent_optional_outputs_are_no_views():
    model = parse("g (float[3] x) => (y) { d, m = Dropout (x) y = Neg (d) }")
    node = next(n for n in model.graph if n.op_type == "Dropout")
    node.outputs[1].name, node.outputs[1].shape, node.outputs[1].type = "", None, None

    assert [s.op for s in flatten(model).steps][-1] == "Neg"


def test_a_model_is_planned_without_the_data_of_its_constants():
    model = parse("g (float[2, 3] x, int64[2] table) => (y) { y = Gather <axis = 0> (x, table) }")
    table = model.graph.inputs.pop()
    table.const_value = Absent(np.array([1, 0]), name="table")
    model.graph.register_initializer(table)

    assert gt.plan(model).peak >= 3 * 64
    with pytest.raises(MissingData, match="table: no data"):
        gt.run(model, {"x": floats(2, 3)})


STRIDED = """g (float[4, 6] x, bool c, int64 n) => (y) {
    a, b = Split <axis = 1, num_outputs = 2> (x)
    z = Neg (b)
    y = Loop (n, c, z) <body = body (int64 i, bool d, float[4, 3] s) => (bool e, float[4, 3] t) {
        e = Identity (d) t = Add (s, a)
    }>
}"""
NESTED = """g (float[3] x, float[3] w, bool c, int64 n) => (y) <int64[1] axes = {0}> {
    y = Loop (n, c, x) <body = outer (int64 i, bool d, float[3] s) => (bool e, float[3] t) {
        e = Identity (d)
        u = Unsqueeze (s, axes)
        v = Squeeze (u, axes)
        t = Loop (n, d, v) <body = inner (int64 j, bool f, float[3] p) => (bool g, float[3] q) {
            g = Identity (f)
            q = Mul (p, w)
        }>
    }>
}"""


@pytest.fixture
def loops(monkeypatch):
    """Some kernel for Loop, so that programs with loops can be looked at."""
    entry = registry.Kernel("", "Loop", 1, lambda xp, *_, **__: xp, host=(0, 1))
    monkeypatch.setitem(registry._loaded(), ("", "Loop"), [entry])


@pytest.mark.usefixtures("loops")
def test_a_subgraph_becomes_a_program_that_takes_what_it_captures():
    (step,) = flatten(parse(NESTED)).steps
    outer = step.attributes["body"]
    assert isinstance(outer, Program)
    names = [outer.values[v].name for v in outer.inputs]
    assert names[:3] == ["i", "d", "s"]
    assert set(names[3:]) == {"n", "w"}
    assert len(step.inputs) == 3 + 2

    (inner,) = (s.attributes["body"] for s in outer.steps if s.op == "Loop")
    assert [inner.values[v].name for v in inner.inputs] == ["j", "f", "p", "w"]


@pytest.mark.usefixtures("loops")
def test_constants_that_a_subgraph_captures_become_its_own():
    (step,) = flatten(parse(NESTED)).steps
    outer = step.attributes["body"]
    held = {outer.values[v].name: a.tolist() for v, a in outer.constants.items()}

    assert held == {"axes": [0]}
    assert kinds(outer)["axes"] == "host"


@pytest.mark.usefixtures("loops")
def test_a_subgraph_is_given_gapless_arrays():
    """Add would take the strided halves of x, but a program plans its inputs without gaps."""
    assert [s.op for s in flatten(parse(STRIDED)).steps] == ["Split", "Neg", "Loop"]


def test_a_clone_that_lacks_an_output_lies_as_the_original_does():
    """What somebody reads of the original without gaps keeps the other parts from being windows."""
    model = parse(
        """g (float[4, 6] x, float[3, 5] w) => (s, y) {
            h = Tanh (x) a, b = Split <axis = 1, num_outputs = 2> (h)
            s = Softmax (a) y = MatMul (b, w)
        }""",
        "w",
    )
    program = flatten(recompute(gt.grad(model, loss="sum:y").model, {"b"}))
    strides = {d.name: program.strides(i) for i, d in enumerate(program.values)}

    assert [s.op for s in program.steps].count("Split") == 2
    assert strides["b_mirror"] == strides["b"]


def test_what_a_simple_kernel_returns_counts_even_if_nobody_reads_it():
    text = "g (float[9] x) => ({}) <int64[1] k = {{5}}> {{ v, i = TopK (x, k) }}"
    (both,) = flatten(parse(text.format("v, i"))).steps
    (one,) = flatten(parse(text.format("i"))).steps

    assert one.outputs[0] is None
    assert one.adapted_bytes == both.adapted_bytes
