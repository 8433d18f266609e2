from __future__ import annotations

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from graphs import floats, gradients, lines, parse, stock

import gradtool as gt
from gradtool.emit.builder import Builder
from gradtool.errors import (
    ModelError,
    NotDifferentiable,
    Unreachable,
    UnsupportedGradient,
    UsageError,
)
from gradtool.graph.composites import DOMAIN
from gradtool.graph.reads import captured, dependent, needed
from gradtool.ops import gradients as registry
from gradtool.ops.composites.calls import inline
from gradtool.ops.driver import Offender, Offenders, differentiate, require_types


@pytest.fixture(autouse=True)
def operators_without_rules(monkeypatch):
    """`test::Gate` and `test::Door` have the shape of their input, and no rule."""
    from onnx_shape_inference import registry as shape_rules

    for name in ("Gate", "Door", "Call"):
        shape_rules.register("test", name)(
            lambda context, node: context.set_shape_and_dtype(
                node.outputs[0], node.inputs[0].shape, node.inputs[0].dtype
            )
        )

    def register(op, rule, **options):
        entry = registry.Gradient("test", op, 1, rule, **options)
        monkeypatch.setitem(registry.RULES.by_operator(), ("test", op), [entry])

    return register


def close(actual, expected, rtol=2e-5, atol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


# ------------------------------------------------------------------------- accumulation

X = floats(3, 3)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("y = Mul (x, x)", 2 * X, id="one value in two slots"),
        pytest.param(
            "y = MatMul (x, x)", np.ones((3, 3)) @ X.T + X.T @ np.ones((3, 3)), id="x @ x"
        ),
        pytest.param("y = Sum (x, x, x)", np.full((3, 3), 3), id="one value in three slots"),
        pytest.param("y = Concat <axis = 0> (x, x)", np.full((3, 3), 2), id="concatenated twice"),
        pytest.param(
            "a = Tanh (x) b = Exp (x) c = Mul (a, b) y = Add (c, x)",
            (1 - np.tanh(X) ** 2) * np.exp(X) + np.tanh(X) * np.exp(X) + 1,
            id="several readers",
        ),
        pytest.param("h = Exp (x) y = Mul (h, h)", 2 * np.exp(2 * X), id="shared node"),
        pytest.param("a = Neg (x) b = Sub (x, a) y = Mul (a, b)", -4 * X, id="diamond"),
        pytest.param("y = Sub (x, x)", np.zeros((3, 3)), id="terms that cancel"),
    ],
)
@pytest.mark.parametrize("accumulate", ["chain", "sum"])
def test_gradients_of_all_readers_add_up(body, expected, accumulate):
    model = parse(f"g (float[3, 3] x) => (y) {{ {body} }}")
    training = gt.grad(model, loss="sum:y", wrt=["x"], accumulate=accumulate)

    close(gradients(training, x=X)["x"], expected)
    close(stock(training.model, x=X)["x_grad"], expected)


def test_a_chain_adds_terms_as_they_appear_and_a_sum_at_once():
    model = parse("g (float[4] x) => (y) { a = Exp (x) b = Neg (x) c = Mul (a, b) y = Mul (c, x) }")
    chain = gt.grad(model, loss="sum:y", wrt=["x"], accumulate="chain").model
    total = gt.grad(model, loss="sum:y", wrt=["x"], accumulate="sum").model

    def count(model):
        ops = [n.op_type for n in model.graph if n.metadata_props["gradtool.stage"] == "backward"]
        return ops.count("Add"), ops.count("Sum")

    assert count(chain) == (2, 0)
    assert count(total) == (0, 1)
    assert len(next(n for n in total.graph if n.op_type == "Sum").inputs) == 3


# ------------------------------------------------------------------------- broadcasting


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 1), (1, 1), (), (1, 2, 3), (4, 1, 1), (1,)])
def test_a_broadcast_operand_gets_a_gradient_of_its_own_shape(shape):
    model = parse(
        f"g (float[2, 3] x, float{list(shape) or ''} b) => (y) {{ p = Mul (x, b) y = Exp (p) }}"
    )
    training = gt.grad(model, loss="sum:y", wrt=["x", "b"])
    x, b = floats(2, 3), floats(*shape, seed=1)
    grads = gradients(training, x=x, b=b)
    full = np.exp(x * b) * np.broadcast_to(x, np.broadcast_shapes(x.shape, b.shape))
    lead = full.ndim - b.ndim
    stretched = [lead + i for i, n in enumerate(b.shape) if n == 1]
    expected = full.sum(axis=(*range(lead), *stretched)).reshape(b.shape)

    assert grads["x"].shape == (2, 3)
    close(grads["b"], expected, rtol=1e-4)


@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize("k", [1, 3])
def test_axes_that_may_have_been_broadcast_are_decided_at_run_time(m, k):
    model = parse("g (float[N, K] x, float[M, 3] w) => (y) { p = Mul (x, w) y = Exp (p) }")
    training = gt.grad(model, loss="sum:y", wrt=["x", "w"])
    x, w = floats(4, k), floats(m, 3, seed=1)
    e = np.exp(x * w)
    dx = (e * w).sum(axis=1, keepdims=True) if k == 1 else e * w
    dw = (e * x).sum(axis=0, keepdims=True) if m == 1 else e * x
    ours, theirs = gradients(training, x=x, w=w), stock(training.model, x=x, w=w)

    close(ours["x"], dx)
    close(ours["w"], dw)
    close(theirs["x_grad"], dx)
    close(theirs["w_grad"], dw)


def test_sizes_that_are_provably_equal_need_no_decision():
    model = parse("g (float[N, 3] x, float[N, 3] w) => (y) { y = Mul (x, w) }")
    training = gt.grad(model, loss="sum:y", wrt=["x", "w"])

    assert "NonZero" not in {n.op_type for n in training.model.graph}


# ------------------------------------------------------------------------- reachability

TWO_OUTPUTS = "g (float[3] x, float[3] w) => (y, z) { y = Exp (x) z = Neg (w) }"


def test_a_value_asked_for_by_name_that_the_loss_does_not_depend_on_is_an_error():
    with pytest.raises(Unreachable, match="the loss does not depend on w"):
        gt.grad(parse(TWO_OUTPUTS), loss="sum:y", wrt=["x", "w"])


def test_a_value_matched_by_a_glob_that_the_loss_does_not_depend_on_is_left_out():
    training = gt.grad(parse(TWO_OUTPUTS), loss="sum:y", wrt=["*"])

    assert dict(training.gradients) == {"x": "x_grad"}
    assert training.candidates == 2
    assert training.warnings == ("left out, the loss does not depend on them: w",)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("f = Floor (x) y = Mul (f, w)", id="rounding"),
        pytest.param("i = ArgMax <axis = 0> (x) y = Gather (w, i)", id="an index"),
        pytest.param("b = Greater (x, w) c = Cast <to = 1> (b) y = Mul (c, w)", id="a comparison"),
        pytest.param("s = Shape (x) y = Expand (w, s)", id="a shape"),
    ],
)
def test_a_value_with_zero_derivatives_only_gets_explicit_zeros(body):
    model = parse(f"g (float[3] x, float[3] w) => (y) {{ {body} }}")
    training = gt.grad(model, loss="sum:y", wrt=["x", "w"])
    feeds = {"x": floats(3), "w": floats(3, seed=1)}

    assert training.zeros == ("x",)
    assert np.array_equal(gradients(training, **feeds)["x"], np.zeros(3))
    assert np.array_equal(stock(training.model, **feeds)["x_grad"], np.zeros(3))


# ---------------------------------------------------------------------------- offenders


def rows(model, **options):
    with pytest.raises(Offenders) as caught:
        gt.grad(model, loss="sum:y", **options)
    return [(row.op, row.nodes, row.first_node) for row in caught.value.rows]


def test_all_operators_without_a_rule_are_named_at_once():
    model = parse(
        """g (float[3] x, float[3] w) => (y) {
            [door] a = test.Door (x) [gate1] b = test.Gate (a) [gate2] c = test.Gate (w)
            [exp] d = Exp (b) y = Mul (c, d)
        }"""
    )

    assert rows(model, wrt=["x", "w"]) == [("test::Gate", 2, "gate1"), ("test::Door", 1, "door")]


def test_an_offender_says_what_to_do():
    with pytest.raises(Offenders, match=r"no gradient for test::Gate \('gate'\): register a rule"):
        gt.grad(
            parse("g (float[3] x) => (y) { [gate] y = test.Gate (x) }"), loss="sum:y", wrt=["x"]
        )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("b = test.Gate (x) c = Floor (b) y = Mul (c, w)", id="its gradient is zero"),
        pytest.param("b = test.Gate (x) y = Mul (x, w)", id="the loss does not depend on it"),
        pytest.param("b = test.Gate (k) c = Mul (b, w) y = Mul (c, x)", id="a constant goes in"),
        pytest.param("b = Floor (x) c = test.Gate (b) d = Neg (x) y = Mul (d, w)", id="unread"),
    ],
)
def test_an_operator_that_no_gradient_reaches_needs_no_rule(body):
    model = parse(f"g (float[3] x, float[3] w, float[3] k) => (y) {{ {body} }}")

    assert set(gt.grad(model, loss="sum:y", wrt=["x", "w"]).gradients) == {"x", "w"}


def test_behind_an_operator_with_zero_gradient_nothing_offends():
    model = parse(
        """g (float[3] x, float[3] w) => (y) {
            a = test.Door (x) b = Floor (a) [gate] c = test.Gate (b) d = Mul (c, w) y = Neg (d)
        }"""
    )

    assert rows(model, wrt=["x", "w"]) == [("test::Gate", 1, "gate")]


def test_a_rule_may_refuse_a_node(operators_without_rules):
    def refuse(_op, node, _dy):
        raise UnsupportedGradient(node, "the gate is shut")

    operators_without_rules("Gate", refuse)
    model = parse("g (float[3] x) => (y) { [g1] a = test.Gate (x) [g2] y = test.Gate (a) }")
    with pytest.raises(Offenders) as caught:
        gt.grad(model, loss="sum:y", wrt=["x"])

    assert "Gate 'g2': the gate is shut" in str(caught.value)


def test_what_a_node_without_gradient_reads_is_asked_for_rules_too(operators_without_rules):
    """Door is on the way to Call, but for what does not depend on x and what is no float."""
    model = parse(
        """g (float[3] x, float[3] k) => (y) {
            [door] a = test.Door (x) b = test.Gate (k) i = Cast <to = 7> (x) j = test.Gate (i)
            [call] y = test.Call (a, b, j)
        }"""
    )
    expected = [("test::Call", 1, "call"), ("test::Door", 1, "door")]

    assert rows(model, wrt=["x"]) == expected

    def refuse(_op, node, *_):
        raise UnsupportedGradient(node, "it is shut")

    operators_without_rules("Call", refuse)

    assert rows(model, wrt=["x"]) == expected


def test_operators_of_as_many_nodes_are_named_in_the_order_of_their_names():
    model = parse("g (float[3] x) => (y) { a = test.Gate (x) y = test.Door (a) }")

    assert [op for op, *_ in rows(model, wrt=["x"])] == ["test::Door", "test::Gate"]


def test_operators_without_a_rule_in_subgraphs_are_named_beside_the_others():
    model = parse(
        """g (float[3] x, bool c) => (y) {
            [gate] a = test.Gate (x)
            b = If (c) <then_branch = t () => (float[3] p) { [door] p = test.Door (a) },
                        else_branch = e () => (float[3] q) { q = Neg (a) }>
            y = Exp (b)
        }"""
    )

    assert {row[0] for row in rows(model, wrt=["x"])} == {"test::Gate", "test::Door"}


def test_values_of_which_nothing_is_known_are_named(operators_without_rules):
    """Fog has a rule, and nobody knows what it makes; nor what that makes in turn."""
    operators_without_rules("Fog", lambda _op, _node, dy: dy)
    model = parse("g (float[3] x) => (y, z) { m = test.Fog (x) z = test.Fog (m) y = Exp (x) }")
    m = model.graph.node(0).outputs[0]
    y, x = model.graph.outputs[0], model.graph.inputs[0]
    z = model.graph.outputs[1]
    z.shape, z.type = ir.Shape([3]), ir.TensorType(ir.DataType.FLOAT)
    op = Builder(model)

    with pytest.raises(NotDifferentiable, match=r"^values of unknown type or shape: m: nothing"):
        differentiate(op, {z: op.constant(np.ones(3, np.float32))}, [x])
    assert m.dtype is None
    assert differentiate(op, {y: op.constant(np.ones(3, np.float32))}, [x]).zeros == ()


@pytest.mark.parametrize("shape", [None, "typed"])
def test_an_output_that_nobody_knows_refuses_the_operators_that_nobody_knows(shape):
    model = parse(
        "g (float[3] x) => (y) { [lost] a = test.Lost (x) b = test.Gate (x) y = Exp (a) }"
    )
    if shape:
        model.graph.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)

    with pytest.raises(Offenders) as caught:
        require_types(model)

    assert caught.value.rows == (
        Offender("test::Lost", 1, "lost", "register a rule: gradtool ops --template test::Lost"),
    )


def test_outputs_that_are_known_refuse_nothing(operators_without_rules):
    known = parse("g (float[3] x) => (y) { a = test.Lost (x) y = Exp (x) }")
    require_types(known)
    operators_without_rules("Fog", lambda _op, _node, dy: dy)
    require_types(parse("g (float[3] x) => (y) { y = test.Fog (x) }"))


def test_an_operator_without_a_name_is_called_unnamed():
    model = parse("g (float[3] x) => (y) { y = test.Lost (x) }")
    model.graph.node(0).name = None

    with pytest.raises(Offenders, match=r"test::Lost \('\(unnamed\)'\)"):
        require_types(model)


# ------------------------------------------------------------------------- wrong rules


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda op, _, dy: op.unsqueeze(dy, 0), "rule of test::Gate is wrong at 'gate': gradient"),
        (lambda op, _, dy: op.cast(dy, ir.DataType.DOUBLE), "wrong at 'gate': gradient DOUBLE"),
        (lambda op, _, dy: op.Concat(dy, dy, axis=0), r"gradient FLOAT\[6\] for 'x' of FLOAT\[3\]"),
        (lambda *_: (), "is wrong at 'gate': 0 gradients for 1 inputs"),
    ],
)
def test_a_rule_that_returns_something_else_is_an_error(operators_without_rules, rule, message):
    operators_without_rules("Gate", rule)
    model = parse("g (float[3] x) => (y) { [gate] y = test.Gate (x) }")

    with pytest.raises(ModelError, match=message):
        gt.grad(model, loss="sum:y", wrt=["x"])


@pytest.mark.parametrize("results", [1 / np.ones(0), [1, 2]])
def test_a_rule_that_stumbles_is_blamed_on_its_node(operators_without_rules, results):
    def rule(_op, _node, _dy):
        return [results[7]]

    operators_without_rules("Gate", rule)
    model = parse("g (float[3] x) => (y) { [gate] y = test.Gate (x) }")

    with pytest.raises(ModelError, match=r"'gate': its gradient fails on it \(IndexError"):
        gt.grad(model, loss="sum:y", wrt=["x"])


def test_what_a_rule_returns_is_blamed_on_its_node_too(operators_without_rules):
    operators_without_rules("Gate", lambda *_: (3,))
    model = parse("g (float[3] x) => (y) { [gate] y = test.Gate (x) }")

    with pytest.raises(ModelError, match=r"'gate': its gradient fails on it \(AttributeError"):
        gt.grad(model, loss="sum:y", wrt=["x"])


def test_a_gradient_takes_the_sizes_of_its_value_where_it_has_no_own(operators_without_rules):
    """The rule gives [3, N], and x is [K, 4]."""
    made = []

    def rule(op, _node, dy):
        made.append(op.Identity(dy))
        made[0].shape = ir.Shape([3, "N"])
        return made[0]

    operators_without_rules("Gate", rule)
    model = parse("g (float[K, 4] x) => (y) { y = test.Gate (x) }")
    gt.grad(model, loss="sum:y", wrt=["x"])

    assert [*made[0].shape] == [3, 4]


# ------------------------------------------------------------------------ without elements


def test_no_rule_is_asked_about_gradients_without_elements(operators_without_rules):
    def rule(_op, _node, _dy):
        raise AssertionError("it is not asked")

    operators_without_rules("Gate", rule)
    model = parse("g (float[0, 3] x, float[3] w) => (y) { a = Mul (x, w) y = test.Gate (a) }")

    assert set(gt.grad(model, loss="sum:y", wrt=["x", "w"]).gradients) == {"x", "w"}


def test_the_gradient_of_what_has_no_elements_is_a_sum_of_no_terms():
    model = parse("g (float[0, 3] x, float[3] w) => (y) { a = Mul (x, w) y = Exp (a) }")
    training = gt.grad(model, loss="sum:y", wrt=["x", "w"])
    grads = gradients(training, x=floats(0, 3), w=floats(3))

    assert training.zeros == ()
    assert grads["x"].shape == (0, 3)
    assert grads["w"].tolist() == [0, 0, 0]


def test_absent_operands_and_indices_have_no_gradient_where_there_are_no_elements():
    model = parse(
        """g (float[3] x, int64[0] i, float w) => (y) {
            a = Gather (x, i) b = Mul (a, w) y = Clip (b, , w)
        }"""
    )
    grads = gradients(
        gt.grad(model, loss="sum:y", wrt=["x", "w"]), x=floats(3), w=floats(), i=np.zeros(0, int)
    )

    assert (grads["x"].tolist(), float(grads["w"])) == ([0, 0, 0], 0)


def test_of_outputs_without_elements_some_may_have_no_gradient():
    model = parse(
        """g (float[0, 4] x) => (y) {
            a, b = Split <axis = 1, num_outputs = 2> (x) y = Exp (a)
        }"""
    )

    assert gradients(gt.grad(model, loss="sum:y", wrt=["x"]), x=floats(0, 4))["x"].shape == (0, 4)


# ------------------------------------------------------------------- heads and the loss


def test_head_gradients_are_inputs():
    model = parse("g (float[2, 3] x) => (y, z, i) { y = Exp (x) z = Neg (x) i = ArgMax (x) }")
    training = gt.grad(model, head_grads=True, wrt=["x"])
    x, dy, dz = floats(2, 3), floats(2, 3, seed=1), floats(2, 3, seed=2)

    assert [v.name for v in training.model.graph.inputs] == ["x", "y_grad", "z_grad"]
    assert training.loss is None
    assert "gradtool.loss" not in training.model.metadata_props
    close(gradients(training, x=x, y_grad=dy, z_grad=dz)["x"], np.exp(x) * dy - dz)


def test_head_gradients_need_a_float_output():
    with pytest.raises(UsageError, match="no output is a float"):
        gt.grad(parse("g (float[3] x) => (i) { i = ArgMax (x) }"), head_grads=True)


@pytest.mark.parametrize(
    ("text", "x"),
    [
        ("g (float[1, 1] x) => (y) { y = Mul (x, x) }", floats(1, 1)),
        ("g (float[1] x) => (y) { y = Mul (x, x) }", floats(1)),
        ("g (float x) => (y) { y = Mul (x, x) }", floats()),
    ],
)
def test_a_loss_may_have_any_rank_if_it_has_one_element(text, x):
    training = gt.grad(parse(text), loss="y", wrt=["x"])
    result = gt.run(training, {"x": x})

    assert result.loss == pytest.approx(float(x.reshape(-1)[0]) ** 2)
    close(result.gradients["x"], 2 * x)


def test_the_gradient_of_the_loss_by_itself_is_one():
    training = gt.grad(parse("g (float x) => (y) { y = Exp (x) }"), loss="y", wrt=["y", "x"])
    x = floats()
    grads = gradients(training, x=x)

    assert grads["y"] == 1
    close(grads["x"], np.exp(x))


# ------------------------------------------------------------------------------ cutting

PRODUCT = "g (float[3] x) => (y) { [tanh] a = Tanh (x) [exp] b = Exp (x) y = Mul (a, b) }"


@pytest.mark.parametrize("cut", ["a", "tanh:0", "tanh:*"])
def test_no_gradient_flows_through_a_value_that_is_cut(cut):
    training = gt.grad(parse(PRODUCT), loss="sum:y", wrt=["x"], no_grad=[cut])
    x = floats(3)

    assert "TanhGrad" not in {n.op_type for n in training.model.graph}
    close(gradients(training, x=x)["x"], np.tanh(x) * np.exp(x))


def test_one_output_of_a_node_can_be_cut():
    model = parse(
        "g (float[4] x) => (y) { [s] a, b = Split <axis = 0, num_outputs = 2> (x) y = Mul (a, b) }"
    )
    training = gt.grad(model, loss="sum:y", wrt=["x"], no_grad=["s:1"])
    x = floats(4)

    close(gradients(training, x=x)["x"], [x[2], x[3], 0, 0])


FROZEN = """g (float[3] x, float[3] w1, float[3] w2) => (y) {
    [one] h = Mul (x, w1) [gate] f = test.Gate (h) y = Mul (f, w2)
}"""


def test_what_lies_behind_a_cut_is_left_out_and_needs_no_rule():
    training = gt.grad(parse(FROZEN, "w1 w2"), loss="sum:y", no_grad=["f"])

    assert dict(training.gradients) == {"w2": "w2_grad"}
    assert training.warnings == ()


def test_a_value_behind_a_cut_that_is_asked_for_by_name_is_an_error():
    with pytest.raises(UsageError, match="--no-grad cuts every path from the loss to w1"):
        gt.grad(parse(FROZEN, "w1 w2"), loss="sum:y", wrt=["w1", "w2"], no_grad=["f"])


def test_a_cut_that_leaves_nothing_is_an_error():
    with pytest.raises(UsageError, match="--no-grad cuts every path from the loss to w1, w2"):
        gt.grad(parse(FROZEN, "w1 w2"), loss="sum:y", no_grad=["y"])


def test_dependence_through_a_cut_asks_no_rule_of_anybody():
    model = parse(
        """g (float[3] x, float[3] w) => (y) {
            a = Exp (x) n = Neg (a) b = test.Gate (n) c = Mul (b, w) y = Add (c, x)
        }"""
    )
    training = gt.grad(model, loss="sum:y", wrt=["x", "w"], no_grad=["a"])

    assert set(training.gradients) == {"x", "w"}


# ------------------------------------------------------------------------ what comes out


def test_an_interior_value_has_a_gradient_too():
    model = parse("g (float[3] x) => (y) { h = Exp (x) a = Neg (h) y = Mul (a, h) }")
    training = gt.grad(model, loss="sum:y", wrt=["h", "x"])
    x = floats(3)
    grads = gradients(training, x=x)

    close(grads["h"], -2 * np.exp(x))
    close(grads["x"], -2 * np.exp(2 * x))


def test_equal_gradients_are_outputs_of_their_own():
    model = parse("g (float[3] x, float[3] w) => (y) { s = Add (x, w) y = Exp (s) }")
    training = gt.grad(model, loss="sum:y", wrt=["x", "w", "s"])

    assert dict(training.gradients) == {"x": "x_grad", "w": "w_grad", "s": "s_grad"}
    assert len({id(v) for v in training.model.graph.outputs}) == 5
    grads = gradients(training, x=floats(3), w=floats(3, seed=1))
    assert np.array_equal(grads["x"], grads["w"])
    assert np.array_equal(grads["x"], grads["s"])


def test_a_taken_name_is_avoided():
    model = parse("g (float[3] x, float[3] x_grad) => (y) { y = Mul (x, x_grad) }")
    training = gt.grad(model, loss="sum:y", wrt=["x", "x_grad"])

    assert dict(training.gradients) == {"x": "x_grad_1", "x_grad": "x_grad_grad"}


def test_weights_may_be_graph_inputs():
    model = parse("g (float[2, 3] x, float[3, 4] w) => (y) { y = MatMul (x, w) }")
    training = gt.grad(model, loss="sum:y", wrt=["w"])
    x = floats(2, 3)

    close(gradients(training, x=x, w=floats(3, 4))["w"], x.T @ np.ones((2, 4)))


def test_gradients_follow_the_outputs_of_the_model():
    model = parse("g (float[3] x, float[3] w) => (y, z) { z = Neg (x) y = Mul (x, w) }")
    training = gt.grad(model, loss="sum:y", wrt=["w", "x"])

    assert [v.name for v in training.model.graph.outputs] == ["y", "z", "loss", "w_grad", "x_grad"]


def test_the_model_given_is_left_as_it_is():
    model = parse(
        """g (float[N, 4] x) => (y) <float[4] w = {1, 2, 3, 4}, float[4] b = {0, 0, 0, 0}> {
            [norm] h = LayerNormalization (x, w, b) y = Tanh (h)
        }"""
    )
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    gt.grad(model, loss="mean:y")

    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_forward_outputs_keep_their_bits():
    model = parse(
        """g (float[5, 4] x) => (y) <float[4] w = {1, 2, 3, 4}, float[4] b = {0, 1, 0, 1}> {
            h = LayerNormalization (x, w, b) t = Tanh (h) y = Softmax (t)
        }"""
    )
    training = gt.grad(model, loss="mean:y")
    x = floats(5, 4)

    assert np.array_equal(stock(model, x=x)["y"], stock(training.model, x=x)["y"])


def test_a_training_graph_is_a_valid_model_in_standard_operators():
    training = gt.grad(parse(PRODUCT), loss="sum:y", wrt=["x"]).model.clone()
    inline(training)
    onnx.checker.check_model(ir.to_proto(training), full_check=True)

    assert {n.domain for n in training.graph} == {""}
    assert set(training.opset_imports) == {""}


def test_metadata_names_loss_gradients_stages_and_sources():
    training = gt.grad(parse(PRODUCT), loss="sum:y", wrt=["x"])
    props = training.model.metadata_props
    nodes = {n.name: n.metadata_props for n in training.model.graph}

    assert props["gradtool.loss"] == "loss"
    assert json.loads(props["gradtool.gradients"]) == {"x": "x_grad"}
    assert nodes["tanh"]["gradtool.stage"] == "forward"
    assert nodes["tanh/grad/TanhGrad"]["gradtool.stage"] == "backward"
    assert nodes["tanh/grad/TanhGrad"]["gradtool.source"] == "tanh"
    assert all("gradtool.stage" in p for p in nodes.values())


def test_the_backward_part_runs_in_reverse():
    """
    h = Exp (x)              y_grad = Expand (1, shape of y)
    y = Tanh (h)      →      h_grad = TanhGrad (y, y_grad)
                             x_grad = Mul (h_grad, h)
    """
    model = parse("g (float[3] x) => (y) { [exp] h = Exp (x) [tanh] y = Tanh (h) }")
    training = gt.grad(model, loss="sum:y", wrt=["y", "h", "x"])
    ours = lines(training.model, "backward")

    assert ours[-2:] == ["h_grad = TanhGrad (y, y_grad)", "x_grad = Mul (h_grad, h)"]
    assert ours[-3].startswith("y_grad = Expand (")


def test_the_same_model_gives_the_same_bytes():
    made = [
        ir.to_proto(gt.grad(parse(PRODUCT), loss="sum:y", wrt=["x"]).model).SerializeToString()
        for _ in range(2)
    ]

    assert made[0] == made[1]


def test_a_training_graph_is_not_differentiated_again_by_mistake():
    training = gt.grad(parse(PRODUCT), loss="sum:y", wrt=["x"])

    with pytest.raises(UsageError, match="already holds gradients"):
        gt.grad(training.model)


def test_second_order_inlines_first():
    """d²/dx² Σ x³ = 6x, and the gradient of `x_grad` by x goes through both."""
    model = parse("g (float[3] x) => (y) { s = Mul (x, x) t = Mul (s, x) y = ReduceSum (t) }")
    first = gt.grad(model, loss="y", wrt=["x"]).model
    inline(first)
    op = Builder(first)
    by_name = {v.name: v for v in first.graph.outputs}
    ones = op.constant(np.ones(3, np.float32))
    made = differentiate(op, {by_name["x_grad"]: ones}, [first.graph.inputs[0]])
    (second,) = made.gradients.values()
    second.name = op.names.fresh("x_grad_grad")
    first.graph.outputs.append(second)
    x = floats(3)

    close(stock(first, x=x)["x_grad_grad"], 6 * x)


def test_composites_without_a_rule_are_opened_where_they_are_on_the_way():
    """Of two gradients, that of x alone is differentiated again: 2 · tanh x · (tanh² x - 1)."""
    first = gt.grad(
        parse("g (float[3] x, float[3] w) => (y) { a = Tanh (x) b = Tanh (w) y = Add (a, b) }"),
        loss="sum:y", wrt=["x", "w"],
    ).model  # fmt: skip
    op = Builder(first)
    by_name = {v.name: v for v in (*first.graph.outputs, *first.graph.inputs)}
    ones = op.constant(np.ones(3, np.float32))
    made = differentiate(op, {by_name["x_grad"]: ones}, [by_name["x"]])
    left = [n.outputs[0].name for n in first.graph if (n.domain, n.op_type) == (DOMAIN, "TanhGrad")]
    (second,) = made.gradients.values()
    second.name = "x_grad_grad"
    first.graph.outputs.append(second)
    x = floats(3)

    assert "w_grad" in left
    assert "x_grad" not in left
    close(stock(first, x=x, w=x)["x_grad_grad"], 2 * np.tanh(x) * (np.tanh(x) ** 2 - 1))


def test_a_composite_all_of_whose_operands_are_on_the_way_is_opened_too():
    """Both the tanh and its gradient depend on x: (tanh · exp)' is differentiated."""
    first = gt.grad(parse(PRODUCT), loss="sum:y", wrt=["x"]).model
    op, closed = Builder(first), [n for n in first.graph if n.op_type == "TanhGrad"]
    (x_grad,) = (v for v in first.graph.outputs if v.name == "x_grad")
    made = differentiate(op, {x_grad: op.constant(np.ones(3, np.float32))}, [first.graph.inputs[0]])

    assert [n.graph for n in closed] == [None]
    assert made.zeros == ()


def test_an_interior_value_that_no_gradient_reaches_is_zero():
    model = parse("g (float[3] x, float[3] w) => (y) { h = Exp (x) f = Floor (h) y = Mul (f, w) }")
    training = gt.grad(model, loss="sum:y", wrt=["h", "w"])

    assert training.zeros == ("h",)
    close(gradients(training, x=floats(3), w=floats(3))["h"], np.zeros(3))


def test_zeros_and_sums_are_of_the_backward_stage_and_called_what_they_are():
    model = parse(
        "g (float[N] x, float[3] w) => (y) { f = Floor (x) a = Mul (f, w) y = Sum (a, a, a) }"
    )
    training = gt.grad(model, loss="sum:y", wrt=["x", "w"], accumulate="sum").model
    made = {n.name: n.metadata_props for n in training.graph}
    zeros = [name for name in made if name.startswith("zeros/")]
    sums = [n for n in training.graph if n.op_type == "Sum"]

    assert zeros
    assert [n.name for n in sums] == ["Sum", "a/grad/Sum"]
    for name in (*zeros, "a/grad/Sum"):
        assert made[name] == {"gradtool.stage": "backward", "gradtool.source": ""}


# ---------------------------------------------------------------------------- subgraphs

BRANCH = """g (float[3] x, float[3] w, float[3] k, bool c) => (y) {
    a = Exp (x)
    y = If (c) <
        then_branch = t () => (float[3] p) {
            q = Loop (one, c, a) <body = b (int64 i, bool d, float[3] s) => (bool e, float[3] u) {
                e = Identity (d)
                u = Mul (s, w)
            }>
            p = Neg (q)
        },
        else_branch = f () => (float[3] r) { r = Identity (k) }
    >
}"""


def branch():
    text = BRANCH.replace("=> (y) {", "=> (y) <int64 one = {1}> {", 1)
    return parse(text)


def test_what_subgraphs_capture_counts_as_read():
    model = branch()
    node = next(n for n in model.graph if n.op_type == "If")

    assert {v.name for v in captured(node)} == {"one", "c", "a", "w", "k"}


def test_dependence_goes_through_captured_values():
    model = branch()
    by_name = {v.name: v for v in model.graph.inputs}
    y = model.graph.outputs[0]

    for name in "xwk":
        assert y in dependent(model.graph, [by_name[name]]), name
        assert by_name[name] in needed(model.graph, [y]), name


def test_captured_values_get_what_a_rule_returns_after_the_inputs(operators_without_rules):
    """A stand-in for control flow: y = x · w, where w is captured and also read outside."""
    model = parse(
        """g (float[3] x, float[3] w) => (y) {
            a = test.Call <body = b () => (float[3] v) { v = Identity (w) }> (x)
            y = Mul (a, w)
        }"""
    )

    def rule(_op, node, dy):
        (w,) = captured(node)
        return dy * w, dy * node.inputs[0]

    operators_without_rules("Call", rule)
    training = gt.grad(model, loss="sum:y", wrt=["x", "w"])
    backward = [n for n in training.model.graph if n.metadata_props["gradtool.stage"] == "backward"]

    assert sum(n.op_type == "Add" for n in backward) == 1


def test_a_rule_that_forgets_captured_values_is_an_error(operators_without_rules):
    model = parse(
        """g (float[3] x, float[3] w) => (y) {
            [call] y = test.Call <body = b () => (float[3] v) { v = Identity (w) }> (x)
        }"""
    )
    operators_without_rules("Call", lambda _op, _node, dy: (dy,))

    with pytest.raises(ModelError, match="1 gradients for 2 inputs"):
        gt.grad(model, loss="sum:y", wrt=["x", "w"])
