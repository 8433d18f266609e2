from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from graphs import floats, parse

import gradtool as gt
from gradtool.errors import MissingData
from gradtool.ops import kernels as registry
from gradtool.program import Program
from gradtool.program.flatten import flatten


class Absent(ir.Tensor):
    """A tensor whose data file is not there."""

    absent = True

    def numpy(self):
        raise MissingData(f"{self.name}: no data")

    tobytes = numpy


def test_what_inference_knows_is_not_computed():
    model = parse("g (float[2, 3] x) => (y) { s = Shape (x) r = Reshape (x, s) y = Exp (r) }")

    assert [s.op for s in flatten(model).steps] == ["Exp"]


def test_dead_nodes_are_left_out():
    model = parse("g (float[3] x) => (y) { a = Exp (x) b = Neg (a) y = Tanh (x) }")

    assert [s.op for s in flatten(model).steps] == ["Tanh"]


def test_what_only_constants_are_made_of_is_no_step():
    """They are known: `b` is too large to be kept, and nobody else reads it."""
    model = parse("""
        g (float[3] x) => (y) <int64[20] a = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19}>
        { b = Mul (a, a) c = Neg (b) s = ReduceSum <keepdims = 0> (c) t = CastLike (s, x)
          y = Mul (x, t) }
    """)

    assert [s.op for s in flatten(model).steps] == ["Mul"]


def test_a_model_is_planned_without_the_data_of_its_constants():
    model = parse("g (float[2, 3] x, int64[2] table) => (y) { y = Gather <axis = 0> (x, table) }")
    table = model.graph.inputs.pop()
    table.const_value = Absent(np.array([1, 0]), name="table")
    model.graph.register_initializer(table)

    assert gt.plan(model).peak >= 3 * 64
    with pytest.raises(MissingData, match="table: no data"):
        gt.run(model, {"x": floats(2, 3)})


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
    monkeypatch.setitem(registry.KERNELS.by_operator(), ("", "Loop"), [entry])


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
    assert {v.name: v.kind for v in outer.values}["axes"] == "host"


def test_what_a_simple_kernel_returns_counts_even_if_nobody_reads_it():
    text = "g (float[9] x) => ({}) <int64[1] k = {{5}}> {{ v, i = TopK (x, k) }}"
    (both,) = flatten(parse(text.format("v, i"))).steps
    (one,) = flatten(parse(text.format("i"))).steps

    assert one.outputs[0] is None
    assert one.scratch_bytes == both.scratch_bytes
