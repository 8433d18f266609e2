"""Backward nodes that need no gradient run in forward where that lets less be kept."""

from __future__ import annotations

import itertools

import onnx_ir as ir
import pytest
from conftest import trials
from graphs import lines, parse
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from staged import hoisted, saved_less, staged, training

import gradtool as gt
from gradtool.emit.builder import Builder
from gradtool.graph.prune import prune
from gradtool.graph.reads import reads
from gradtool.graph.stages import is_backward
from gradtool.graph.training_info import record
from gradtool.passes.residuals import Sizes, residuals
from gradtool.workloads.hoist import decide, move, move_back
from gradtool.workloads.save_less import save_less


def is_ordered(model: ir.Model) -> bool:
    """Whether every value is computed before it is read."""
    known = {*model.graph.inputs, *model.graph.initializers.values()}
    for node in model.graph:
        if not known.issuperset(reads(node)):
            return False
        known.update(node.outputs)
    return True


# ------------------------------------------------------------------------------ before, after


def test_a_mask_is_computed_right_after_what_it_reads():
    model = training("m = Greater (a, b) z = Neg (g) dx = Where (m, z, g)")
    after = saved_less(model)

    assert lines(model) == [
        "a = Exp (x)",
        "b = Tanh (x)",
        "y = Add (a, b)",
        "m = Greater (a, b)",
        "z = Neg (g)",
        "dx = Where (m, z, g)",
    ]
    assert lines(after) == [
        "a = Exp (x)",
        "b = Tanh (x)",
        "m = Greater (a, b)",
        "y = Add (a, b)",
        "z = Neg (g)",
        "dx = Where (m, z, g)",
    ]
    assert lines(after, "backward") == lines(after)[4:]
    assert hoisted(after) == ["m"]


def test_a_chain_moves_as_far_as_its_narrowest_place():
    """Of Equal, Cast and ReduceSum the last is smallest; its broadcast stays."""
    text = """g (float[1000, 8] x, float[1000, 8] g) => (y, dx) <int64[2] k = {1000, 8}> {
        a = Exp (x) b = Tanh (x) y = Add (a, b)
        e = Equal (a, b) c = Cast <to = 1> (e) s = ReduceSum (c) t = Expand (s, k) dx = Mul (t, g)
    }"""
    model = staged(text)
    after = saved_less(model)

    assert hoisted(after) == ["e", "c", "s"]
    assert [v.name for v in residuals(after).values] == ["s"]


def test_two_values_that_only_serve_their_product_are_kept_as_that():
    after = saved_less(training("p = Mul (a, b) z = Neg (g) dx = Mul (p, z)"))

    assert hoisted(after) == ["p"]


@pytest.mark.parametrize(
    ("backward", "why"),
    [
        ("p = Neg (a) dx = Mul (p, g)", "as many bytes cross: a tie stays"),
        ("m = Greater (a, b) d = Where (m, g, a) dx = Mul (d, b)", "a and b are kept anyway"),
        ("p = Mul (y, y) dx = Mul (p, g)", "y is a result of the model, and kept anyway"),
        ("p = Mul (x, x) dx = Mul (p, g)", "x is an input, and always there"),
        ("p = Mul (a, b) q = RandomNormalLike <seed = 1.0> (p) dx = Mul (q, g)", "drawn"),
    ],
)
def test_nothing_moves_that_saves_nothing(backward, why):
    model = training(backward)
    if "Random" in backward:  # the product may move, what is drawn may not
        assert "q" not in hoisted(saved_less(model)), why
        return

    assert not save_less(model), why


def test_what_depends_on_a_gradient_stays():
    """The head is an input that looks like any other."""
    model = training("p = Mul (a, g) s = ReduceSum (p) dx = Mul (s, b)", size="N")

    assert not save_less(model)


def test_a_constant_head_is_a_gradient_too():
    """Everything could be computed in forward: the loss is a number, its gradient is one."""
    text = "g (float[1000, 8] x, float[8] w) => (y) { h = Mul (x, w) y = ReduceSum (h) }"
    after = gt.grad(parse(text, "w"), loss="sum:y")

    assert hoisted(after.model) == []
    assert any(is_backward(n) for n in after.model.graph)


def test_a_graph_that_does_not_say_where_gradients_come_from_stays():
    model = training("m = Greater (a, b) dx = Where (m, g, x)")
    record(model, heads=None)

    assert not save_less(model)


def test_what_was_recomputed_is_not_moved_back_to_forward():
    model = training("m = Greater (a, b) dx = Where (m, g, x)")
    model.graph.node("m").metadata_props["gradtool.stage"] = "recompute"

    assert not save_less(model)
    assert [v.name for v in residuals(model).values] == ["a", "b"]


def test_nodes_that_read_inputs_only_move_along_to_their_first_reader():
    model = training("n = Neg (x) m = Greater (a, n) o = Greater (b, n) c = And (m, o) "
                     "dx = Where (c, g, x)")  # fmt: skip
    after = saved_less(model)

    assert hoisted(after) == ["n", "m", "o", "c"]
    assert is_ordered(after)
    assert [n.name for n in after.graph][:4] == ["a", "n", "m", "b"]


def test_moving_back_restores_the_stages_and_an_order():
    model = training("m = Greater (a, b) z = Neg (g) dx = Where (m, z, g)")
    after = saved_less(model)
    move_back(after)

    assert hoisted(after) == []
    assert is_ordered(after)
    assert sorted(lines(after, "backward")) == sorted(lines(model, "backward"))


def test_subgraphs_move_with_what_they_capture():
    text = """g (float[1000, 8] x, float[1000, 8] g, bool c) => (y, dx) {
        a = Exp (x) b = Tanh (x) y = Add (a, b)
        p = If (c) <
            then_branch = t () => (float[1000, 8] u) { u = Mul (a, b) },
            else_branch = f () => (float[1000, 8] v) { v = Sub (a, b) }
        >
        dx = Mul (p, g)
    }"""
    after = saved_less(staged(text))

    assert hoisted(after) == ["p"]
    assert is_ordered(after)


# -------------------------------------------------------------------------------- optimality


WIDE = ir.DataType.DOUBLE
KINDS = st.sampled_from([WIDE, ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.UINT8])


@st.composite
def drawn(draw):
    """A random training graph: forward values, free nodes on them, readers with gradients."""
    model = parse("g (float[16, 8] x, float[16, 8] g) => (y) { y = Neg (x) }")
    op = Builder(model, stage="forward")
    x, g = model.graph.inputs
    known = [op.Cast(op.Neg(x), to=t) for t in draw(st.lists(KINDS, min_size=1, max_size=4))]
    op.stage = "backward"
    for _ in range(draw(st.integers(1, 4))):
        wide = _total(op, draw(st.lists(st.sampled_from(known), min_size=1, max_size=3)))
        known.append(op.Cast(wide, to=draw(KINDS)))
        if draw(st.booleans()):
            known.append(op.ReduceSum(wide, keepdims=1))
    read = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    model.graph.outputs.append(_total(op, [g, *read]))
    record(model, heads=("g",))
    prune(model)
    return model


def _total(op: Builder, values: list[ir.Value]) -> ir.Value:
    """The sum of values of different types and sizes."""
    return op.Sum(*(op.Cast(v, to=WIDE) if v.dtype != WIDE else v for v in values))


def free_nodes(model: ir.Model) -> list[ir.Node]:
    """The backward nodes that no gradient reaches."""
    bound, found = {model.graph.inputs[1]}, []
    for node in filter(is_backward, model.graph):
        if bound.isdisjoint(reads(node)):
            found.append(node)
        else:
            bound.update(node.outputs)
    return found


def least(model: ir.Model) -> int:
    """The fewest bytes that may cross, by trying every set of free nodes."""
    free = free_nodes(model)
    needs = {n: {p for v in reads(n) if (p := v.producer()) in free} for n in free}
    found = []
    for moved in itertools.product((False, True), repeat=len(free)):
        chosen = set(itertools.compress(free, moved))
        if all(needs[n] <= chosen for n in chosen):
            for node in free:
                node.metadata_props["gradtool.stage"] = "forward" if node in chosen else "backward"
            found.append(residuals(model).bytes)
    for node in free:
        node.metadata_props["gradtool.stage"] = "backward"
    return min(found)


@settings(max_examples=trials(40), deadline=None)
@given(drawn())
def test_no_set_of_moves_crosses_with_fewer_bytes(model):
    assume(len(free_nodes(model)) <= 11)
    best = least(model)
    chosen = decide(model, Sizes())
    before = residuals(model).bytes
    move(model, chosen.moved)

    assert residuals(model).bytes == best
    assert bool(chosen) == (best < before)
    assert is_ordered(model)


def test_saving_less_twice_changes_nothing_more():
    model = training("m = Greater (a, b) z = Neg (g) dx = Where (m, z, g)")
    once = saved_less(model)

    assert not save_less(once)
