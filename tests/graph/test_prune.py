from __future__ import annotations

from graphs import lines, parse

from gradtool.graph.prune import drop, prune

CAPTURING = """g (float[3] x, bool c) => (y) <int64 n = {{2}}> {{
    a = Exp (x)
    b = Neg (x)
    l = Loop (n, c, x) <body = t (int64 i, bool d, float[3] s) => (bool e, float[3] q) {{
        e = Identity (d) q = Mul (s, a)
    }}>
    y = Abs ({read})
}}"""


def test_unread_nodes_and_initializers_go():
    model = parse(
        "g (float[3] x) => (y) <float[1] k = {1}> { a = Exp (x) b = Mul (a, k) y = Neg (x) }"
    )

    assert prune(model) == 2
    assert lines(model) == ["y = Neg (x)"]
    assert list(model.graph.initializers) == []


def test_what_only_a_subgraph_reads_stays():
    model = parse(CAPTURING.format(read="l"))

    assert prune(model) == 1
    assert [n.op_type for n in model.graph] == ["Exp", "Loop", "Abs"]


def test_what_only_a_dropped_subgraph_read_goes_too():
    model = parse(CAPTURING.format(read="x"))

    assert prune(model) == 3
    assert lines(model) == ["y = Abs (x)"]
    assert list(model.graph.initializers) == []


def test_a_graph_without_dead_nodes_is_left_alone():
    model = parse("g (float[3] x) => (y) { a = Exp (x) y = Neg (a) }")

    assert prune(model) == 0
    assert lines(model) == ["a = Exp (x)", "y = Neg (a)"]


def test_nodes_that_read_each_other_can_be_dropped_together():
    model = parse("g (float[3] x) => (y) { a = Exp (x) b = Neg (a) y = Tanh (x) }")
    drop([n for n in model.graph if n.op_type in ("Exp", "Neg")])

    assert lines(model) == ["y = Tanh (x)"]
