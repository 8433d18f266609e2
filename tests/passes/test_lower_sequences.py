"""Sequences of known structure become tensors; the others stay."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import floats, lines, parse, stock

from gradtool.builder import Builder
from gradtool.passes.lower_sequences import lower_sequences
from gradtool.passes.prune import prune
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
    "at": ("one = Constant <value = int64 {1}> () s = SequenceConstruct (x, z) y = SequenceAt (s, one)",
           ["y = Identity (z)"]),
    "concat": ("s = SequenceConstruct (x, z, x) y = ConcatFromSequence <axis = 1> (s)",
               None),
    "stack": ("s = SequenceConstruct (x, z) y = ConcatFromSequence <axis = -1, new_axis = 1> (s)", None),
    "insert at a position": (
        "k = Constant <value = int64 {0}> () e = SequenceEmpty () s = SequenceInsert (e, x) "
        "t = SequenceInsert (s, z, k) y = ConcatFromSequence <axis = 0> (t)", None),
    "erase": (
        "k = Constant <value = int64 {-2}> () s = SequenceConstruct (x, z, x) t = SequenceErase (s, k) "
        "y = ConcatFromSequence <axis = 0> (t)", None),
    "split evenly": (
        "k = Constant <value = int64 {2}> () n = Constant <value = int64 {-1}> () "
        "s = SplitToSequence <axis = 1> (x, k) y = SequenceAt (s, n)", None),
    "split with a rest": (
        "k = Constant <value = int64 {4}> () n = Constant <value = int64 {1}> () "
        "s = SplitToSequence <axis = 1> (x, k) y = SequenceAt (s, n)", None),
    "split into given sizes": (
        "k = Constant <value = int64[3] {1, 3, 2}> () n = Constant <value = int64 {1}> () "
        "s = SplitToSequence <axis = 1> (x, k) y = SequenceAt (s, n)", None),
    "unbind": (
        "n = Constant <value = int64 {3}> () s = SplitToSequence <axis = 0, keepdims = 0> (x) "
        "y = SequenceAt (s, n)", None),
    "length": ("s = SequenceConstruct (x, z, x) y = SequenceLength (s)", None),
    "map": (
        "s = SequenceConstruct (x, z) t = SequenceMap <body = b (float[4, 6] e) => (f) "
        "{ q = Tanh (e) f = Mul (q, z) }> (s) y = ConcatFromSequence <axis = 0> (t)", None),
    "optional": ("o = Optional (x) y = OptionalGetElement (o)", ["y = Identity (x)"]),
    "optional that is there": ("o = Optional (x) y = OptionalHasElement (o)", None),
    "a tensor is there": ("y = OptionalHasElement (x)", None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_known_structure(name):
    body, expected = CASES[name]
    before, after = lowered(body)
    feeds = {"x": floats(4, 6), "z": floats(4, 6, seed=1), "i": np.asarray(0)}
    known = {v.name for v in before.graph.inputs}
    wanted = {k: v for k, v in feeds.items() if k in known}

    assert not any("equence" in n.op_type or "Optional" in n.op_type for n in after.graph)
    if expected is not None:
        assert lines(after) == expected
    assert (stock(before, **wanted)["y"] == stock(after, **wanted)["y"]).all()


@pytest.mark.parametrize(
    "body",
    [
        "s = SequenceConstruct (x, z) y = SequenceAt (s, i)",
        "s = SequenceConstruct (x, z) t = SequenceErase (s, i) y = ConcatFromSequence <axis = 0> (t)",
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
           else_branch = e () => (b) { r = SequenceInsert (s, x) b = ConcatFromSequence <axis = 0> (r) }
        >"""
    _, after = lowered(body, 2)

    assert not any("equence" in n.op_type for n in after.graph.all_nodes())
