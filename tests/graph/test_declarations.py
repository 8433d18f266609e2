"""What a declaration gets: what it names, by place or by keyword."""

from __future__ import annotations

from gradtool.graph.declarations import ask


def test_a_declaration_gets_as_many_operands_as_it_has_places():
    assert ask(lambda x, y: (x, y), [1, 2, 3], [], {}) == (1, 2)
    assert ask(lambda *inputs: inputs, [1, 2, 3], [], {}) == (1, 2, 3)


def test_a_declaration_gets_the_results_and_attributes_that_it_names():
    assert ask(lambda *, axis=0: axis, [1], [2], {"axis": 5, "p": 7}) == 5
    assert ask(lambda x, *, out: (x, out), [1], [2], {"axis": 5}) == (1, (2,))
    assert ask(lambda **given: given, [], [2], {"axis": 5}) == {"out": (2,), "axis": 5}
    assert ask(lambda **given: given, [], None, {"axis": 5}) == {"axis": 5}


def test_an_attribute_may_be_named_behind_the_operands():
    assert ask(lambda x, axis: (x, axis), [1], None, {"axis": 5}) == (1, 5)


def test_what_is_absent_keeps_its_default():
    assert ask(lambda x, y=None, *, axis=3: (x, y, axis), [1], None, {}) == (1, None, 3)
