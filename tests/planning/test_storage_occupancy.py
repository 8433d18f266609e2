"""Values that lie in one storage in turn: which one names it, and when it changes its region."""

from __future__ import annotations

import pytest
from programs import program
from training_programs import backward_from

from gradtool.planning.liveness import called_at, lifetimes
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.storage_occupancy import Tenants


def shared(made, first):
    """The lifetime of the place that several values share, `first` first."""
    return next(e for e in lifetimes(made) if made.values[e.values[0]].name == first)


MADE = backward_from(
    program("a = Exp x", "b = Tanh a", "c = Exp b", "d = Exp b", "g = Mul c d", "h = Mul g b",
            "k = Exp h", outputs="k", in_place=True), 4,
)  # fmt: skip


def test_each_value_has_its_turn():
    """a lies there at step 0, b from 1 on, and backward writes h and k over it."""
    tenants, place = Tenants(MADE), shared(MADE, "a")

    assert [MADE.values[v].name for v in place.values][:2] == ["a", "b"]
    assert [tenants.at(place.values, step) for step in (0, 1, 3)] == [0, 1, 1]


@pytest.mark.parametrize("step", range(7))
def test_at_each_step_a_place_is_called_by_who_lies_there(step):
    born = {v: i for i, s in enumerate(MADE.steps) for v in s.writes}
    for each in called_at(MADE, lifetimes(MADE), step):
        if len(each.values) > 1 and each.first <= step <= each.last:
            holder = max((v for v in each.values if born[v] <= step), key=born.__getitem__)

            assert each.name == MADE.values[holder].name


def test_a_place_that_is_free_at_the_peak_is_called_by_its_longest_tenant():
    made = program("a = Exp x", "b = Tanh a", "c = Neg x", "d = Neg x", "e = Mul c d",
                   "f = Mul e b", outputs="f", in_place=True)  # fmt: skip

    assert shared(made, "a").name == "b"


def test_backward_turns_an_activation_into_a_temporary():
    made = backward_from(
        program("a = Exp x", "b = Exp a", "g = Mul b a", "h = Exp g", "k = Mul h w", "z = Exp k",
                outputs="z", parameters="w", in_place=True), 2,
    )  # fmt: skip
    plan = no_recompute(made)
    spans = [span for buffer in plan.buffers if buffer.turn is not None for span in buffer.spans]

    assert spans[0].region == "activations"
    assert {span.region for span in spans} <= {"activations", "backward temporaries", "outputs"}
    for before, after in zip(spans[::2], spans[1::2], strict=True):
        assert before.last + 1 == after.first
