"""What made a metric grow, by tensor and operator, with reasons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gates import metrics, operator, tensor

from gradtool import api
from gradtool.comparison import Snapshot, compare
from gradtool.comparison.footprint import all_tensors, operators_of
from gradtool.comparison.growth import HELD_LONGER, HELD_NOW, growth
from gradtool.comparison.metrics import called_as
from gradtool.planning.plan import ALWAYS_LIVE, TEMPORARIES
from gradtool.workloads import plans, strategies

ROOT = Path(__file__).parents[2]


def why(before, now, metric="peak"):
    return {row.name: row.why for row in growth(before, now, metric)}


def tensors(**found):
    return metrics(tensors=found)


def test_nothing_grew_where_nothing_changed():
    same = metrics({"a": tensor()}, {"Relu": operator(held=64)})

    assert growth(same, same) == ()


def test_the_largest_growth_comes_first_and_has_its_bytes():
    before = tensors(a=tensor(64), b=tensor(64), c=tensor(64))
    now = tensors(a=tensor(128, shape=(8,)), b=tensor(640, shape=(40,)), c=tensor(64))

    rows = growth(before, now)

    assert [(r.name, r.baseline, r.now, r.growth) for r in rows] == [
        ("b", 64, 640, 576),
        ("a", 64, 128, 64),
    ]


def test_each_reason_has_its_words():
    before = metrics(
        {
            "shape": tensor(64, shape=(4, 4)), "dtype": tensor(64, dtype="float16"),
            "op": tensor(64, op="Tanh"), "again": tensor(64, again=1, held=0),
            "held": tensor(64, held=0), "longer": tensor(64), "scalar": tensor(64, shape=()),
        },
        {"Relu": operator(), "Tanh": operator()},
    )  # fmt: skip
    now = metrics(
        {
            "shape": tensor(128, shape=(8, 4)), "dtype": tensor(128), "op": tensor(128),
            "again": tensor(64), "held": tensor(64), "longer": tensor(64, held=128),
            "scalar": tensor(128, shape=(2,)), "new": tensor(64), "first": tensor(64, op="Erf"),
        },
        kept={"again": "the policy runs this operator once", "first": "it draws at random"},
    )  # fmt: skip

    assert why(before, now) == {
        "shape": "4x4 → 8x4",
        "dtype": "float16 → float32",
        "op": "Tanh → Relu",
        "again": "no longer computed again: the policy runs this operator once",
        "held": HELD_NOW,
        "longer": HELD_LONGER,
        "scalar": "scalar → 2",
        "new": "new",
        "first": "new operator Erf: it draws at random",
    }


def test_what_has_a_place_of_its_own_now_says_whose_it_was_in():
    before = metrics(
        {"t": tensor(64, op="Tanh", also=("h",)), "s": tensor(64, also=("g",))},
        {"Relu": operator(), "Tanh": operator()},
    )  # fmt: skip
    now = metrics(
        {"t": tensor(64, op="Noise"), "h": tensor(64), "s": tensor(64), "g": tensor(64)},
        kept={"t": "it draws at random"},
    )

    assert why(before, now) == {
        "h": "no longer in the place of t, Tanh → Noise: it draws at random",
        "g": "no longer in the place of s",
    }


def test_a_place_that_another_of_its_values_names_did_not_grow():
    """The busiest step moved; `b` and `c` lie where `a` did, which a baseline need not say."""
    for also in ((), ("b", "c")):
        before = tensors(a=tensor(64, op="Conv", also=also))
        now = tensors(b=tensor(64, also=("a", "c")))

        assert why(before, now) == {}
    grown = tensors(b=tensor(128, shape=(9,), also=("a", "c")))
    assert list(why(before, grown).values()) == ["4 → 9"]


def test_each_place_is_renamed_once():
    """Two tensors of a baseline lie in one place now: none of them is lost."""
    before = tensors(a=tensor(64), b=tensor(64))
    now = tensors(c=tensor(64, also=("a", "b")))

    found = called_as(before.tensors, now.tensors)

    assert sorted(found) == ["b", "c"]
    assert sum(each.held for each in found.values()) == 128


def test_causes_come_before_what_only_happens_to_be_held():
    before = tensors(big=tensor(1 << 20, held=0), small=tensor(64))
    now = tensors(big=tensor(1 << 20), small=tensor(128, shape=(8,)))

    assert [row.name for row in growth(before, now)] == ["small", "big"]


def test_a_tensor_of_another_name_did_not_grow():
    before = tensors(a=tensor(64, shape=(4, 4)), b=tensor(64))
    now = tensors(c=tensor(64, shape=(4, 4)), b=tensor(64), d=tensor(64, shape=(9,)))

    assert list(why(before, now)) == ["d"]


def test_what_may_have_been_too_small_to_be_listed_is_not_called_new():
    before = metrics({"a": tensor(256)}, left_out=9)
    now = tensors(a=tensor(256), b=tensor(128), c=tensor(512))

    assert list(why(before, now)) == ["c"]


def test_a_region_counts_what_lies_in_it_whatever_is_held():
    before = tensors(w=tensor(64, region="parameters", op=""), a=tensor(64))
    now = tensors(w=tensor(128, region="parameters", op="", shape=(8,)), a=tensor(640, shape=(1,)))

    assert list(why(before, now, "parameters")) == ["w"]
    assert list(why(before, now, "activations")) == ["a"]
    assert why(before, now, "gradients") == {}


def test_operators_are_told_by_nodes_and_by_what_runs_again():
    before = metrics(operators={"Relu": operator(2, held=64), "Add": operator(1, held=64)})
    now = metrics(
        operators={
            "Relu": operator(3, held=128),
            "Add": operator(1, held=128),
            "Erf": operator(1, held=64),
        }
    )

    assert why(before, now) == {
        "Relu": "2 → 3 nodes", "Erf": "new: 1 node", "Add": "holds more at the peak",
    }  # fmt: skip


def test_extra_work_is_told_by_operators():
    before = metrics(operators={"Relu": operator(2, 0, 10), "Add": operator(2, 1, 10, 5)})
    now = metrics(operators={"Relu": operator(2, 2, 20, 10), "Add": operator(2, 1, 10, 5)})

    (row,) = growth(before, now, "extra-flops")
    assert (row.name, row.kind, row.baseline, row.now) == ("Relu", "operator", 0, 10)
    assert row.why == "2 computed again, before 0"
    assert why(before, now, "recomputed") == {"Relu": "2 computed again, before 0"}


def former(plan):
    """The tensors of a plan as they were recorded when places went by the first or last value."""
    buffers = []
    for buffer in plan.buffers:
        called = len(buffer.values) - 1 if buffer.region in ("gradients", "outputs") else 0
        if buffer.values and buffer.region not in ALWAYS_LIVE:
            name = plan.program.values[buffer.values[called]].name
            buffer = replace(buffer, name=name, called=called)  # noqa: PLW2901
        if buffer.region == TEMPORARIES:
            buffer = replace(buffer, region="activations")  # noqa: PLW2901
        buffers.append(buffer)
    found = all_tensors(replace(plan, buffers=tuple(buffers)))
    return {name: replace(each, also=()) for name, each in found.items()}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["cnn", "transformer", "lstm"])
@pytest.mark.parametrize("strategy", ["keep", "reorder", "mirror", "sqrt", "segments"])
def test_in_baselines_of_earlier_names_nothing_grew(name, strategy):
    training = api.grad(api.load(ROOT / "samples" / f"{name}.onnx", dims={"batch": 4})).model
    plan = strategies.STRATEGIES[strategy](plans.workload(training)).plan
    now = metrics(all_tensors(plan), operators_of(plan))
    before = metrics(former(plan), operators_of(plan))

    assert (set(before.tensors) == set(now.tensors)) is (name == "lstm")
    for metric in ("peak", "activations", "gradients", "outputs"):
        assert [row.name for row in growth(before, now, metric) if row.kind == "tensor"] == []
    sides = [Snapshot(name, {}, {}, each.tensors) for each in (before, now)]
    assert compare(*sides).parts["tensor"] == ()
