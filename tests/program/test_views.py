from __future__ import annotations

from clones import recompute
from graphs import parse

import gradtool as gt
from gradtool.ops import kernels as registry
from gradtool.program.flatten import flatten

STRIDED = """g (float[4, 6] x, bool c, int64 n) => (y) {
    a, b = Split <axis = 1, num_outputs = 2> (x)
    z = Neg (b)
    y = Loop (n, c, z) <body = body (int64 i, bool d, float[4, 3] s) => (bool e, float[4, 3] t) {
        e = Identity (d) t = Add (s, a)
    }>
}"""


def test_absent_optional_outputs_are_no_views():
    model = parse("g (float[3] x) => (y) { d, m = Dropout (x) y = Neg (d) }")
    node = next(n for n in model.graph if n.op_type == "Dropout")
    node.outputs[1].name, node.outputs[1].shape, node.outputs[1].type = "", None, None

    assert [s.op for s in flatten(model).steps][-1] == "Neg"


def test_a_subgraph_is_given_gapless_arrays(monkeypatch):
    """Add would take the strided halves of x, but a program plans its inputs without gaps."""
    entry = registry.Kernel("", "Loop", 1, lambda xp, *_, **__: xp, host=(0, 1))
    monkeypatch.setitem(registry.KERNELS.by_operator(), ("", "Loop"), [entry])

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


def test_without_views_every_node_is_a_step():
    model = parse("g (float[2, 6] x) => (y) { t = Transpose (x) y = Exp (t) }")

    assert [s.op for s in flatten(model).steps] == ["Exp"]
    assert [s.op for s in flatten(model, views=False).steps] == ["Transpose", "Exp"]
