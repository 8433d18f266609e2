import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtool.comparison import Moved, Snapshot, alone, compare, pairs
from gradtool.comparison.metrics import Tensor
from gradtool.errors import UsageError

sizes = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100))


def tensor(held, *, op="Relu", shape=(4,), dtype="float32", again=0):
    return Tensor(op, "activations", shape, dtype, held, held, again)


def side(name="net", totals=None, **known):
    return Snapshot(name, totals or {}, **known)


@given(before=sizes, now=sizes)
def test_what_moved_of_a_part_adds_up_to_the_difference(before, now):
    found = compare(side(parts={"region": before}), side(parts={"region": now})).parts["region"]

    assert sum(row.delta for row in found) == sum(now.values()) - sum(before.values())
    assert all(row.delta for row in found)
    assert [abs(row.delta) for row in found] == sorted(
        (abs(row.delta) for row in found), reverse=True
    )


@given(before=sizes, now=sizes)
def test_tensors_that_were_renamed_do_not_change_the_sum(before, now):
    sides = [side(tensors={n: tensor(held) for n, held in each.items()}) for each in (before, now)]

    found = compare(*sides)

    assert sum(row.delta for row in found.parts["tensor"]) == sum(now.values()) - sum(
        before.values()
    )


@given(both=sizes)
def test_nothing_moves_between_a_step_and_itself(both):
    same = side(
        totals=both, parts={"operator": both}, tensors={n: tensor(h) for n, h in both.items()}
    )

    found = compare(same, same)

    assert found.parts == {"operator": (), "tensor": ()}
    assert [row.delta for row in found.totals] == [0] * len(both)


@given(before=sizes, now=sizes)
def test_backwards_every_movement_is_the_opposite(before, now):
    there = compare(side(parts={"node": before}), side(parts={"node": now})).parts["node"]
    back = compare(side(parts={"node": now}), side(parts={"node": before})).parts["node"]

    assert [(row.name, row.delta) for row in there] == [(row.name, -row.delta) for row in back]


def test_a_tensor_that_only_has_another_name_is_counted_not_listed():
    found = compare(
        side(tensors={"old": tensor(64), "other": tensor(8)}),
        side(tensors={"new": tensor(64), "other": tensor(16)}),
    )

    assert [row.name for row in found.parts["tensor"]] == ["other"]
    assert found.renamed == 1


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (tensor(8), tensor(16, shape=(8,)), "4 → 8"),
        (tensor(8), tensor(16, op="Gelu"), "Relu → Gelu"),
        (tensor(8), tensor(16, dtype="float64"), "float32 → float64"),
        (tensor(8), tensor(0, again=1), "computed again; no longer held"),
        (tensor(0, again=1), tensor(8), "no longer computed again; held now"),
        (tensor(8), tensor(16), ""),
    ],
)
def test_what_is_different_about_a_tensor_is_said(before, now, why):
    (row,) = compare(side(tensors={"t": before}), side(tensors={"t": now})).parts["tensor"]

    assert row == Moved("t", before.held, now.held, why)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({}, "new"),
        ({"partial": True}, "held now"),
        ({"in_place": frozenset("t")}, "no longer in place"),
    ],
)
def test_a_tensor_that_was_not_there_is_new_only_where_all_are_known(known, why):
    (row,) = compare(side(tensors={}, **known), side(tensors={"t": tensor(8)})).parts["tensor"]

    assert row == Moved("t", None, 8, why)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({}, "gone"),
        ({"partial": True}, "no longer held"),
        ({"in_place": frozenset("t")}, "in place now"),
    ],
)
def test_a_tensor_that_is_not_there_is_gone_only_where_all_are_known(known, why):
    (row,) = compare(side(tensors={"t": tensor(8)}), side(tensors={}, **known)).parts["tensor"]

    assert row == Moved("t", 8, None, why)


def test_what_one_side_does_not_know_is_said_and_not_compared():
    found = compare(
        side("a", parts={"region": {}, "operator": {}}), side("b", parts={"region": {}})
    )

    assert list(found.parts) == ["region"]
    assert found.unknown == ("operators, of which b (now) says nothing",)


def test_one_and_one_belong_together_whatever_their_names():
    assert pairs([side("a")], [side("b")]) == [(side("a"), side("b"))]


def test_of_several_those_of_one_name_belong_together():
    before, now = [side("a"), side("b")], [side("b"), side("c")]

    assert pairs(before, now) == [(side("b"), side("b"))]
    assert alone(before, [side("b")]) == ["a"]
    assert alone(now, [side("b")]) == ["c"]


def test_sides_that_share_no_name_are_refused():
    with pytest.raises(UsageError, match="no name is in both: a, b; c"):
        pairs([side("a"), side("b")], [side("c")])
