"""Plans over one arena: what is shared lies at one place, and nothing overlaps."""

import pytest

import gradtool as gt
from gradtool.planning.packing import overlap
from gradtool.planning.shared_layout import extended, laid_over, size

NET = """net (float[batch, 4] x) => (float[batch, 2] y) {
    h = MatMul (x, w)
    r = Relu (h)
    y = MatMul (r, v)
}"""


@pytest.fixture
def plans(model):
    import numpy as np

    path = model(NET, w=np.ones((4, 40), np.float32), v=np.ones((40, 2), np.float32))
    step = gt.grad(gt.load(path), loss="mean:y", optimizer="adam")
    training = gt.grad(gt.load(path), loss="mean:y")
    return [gt.plan(step, dims={"batch": 3}), gt.plan(training, dims={"batch": 9})]


NAMES = ("w", "v", "w_exp_avg", "v_exp_avg", "w_exp_avg_sq", "v_exp_avg_sq", "step")


def test_a_plan_alone_takes_what_it_took(plans):
    for plan in plans:
        laid = laid_over(plan, extended({}, plan, NAMES), NAMES)

        assert (laid.peak, laid.peak_live) == (plan.peak, plan.peak_live)
        assert overlap(laid.buffers) is None


def test_without_anything_shared_nothing_moves(plans):
    for plan in plans:
        assert laid_over(plan, {}, NAMES) == plan


def test_what_is_shared_lies_at_the_same_place_in_all_plans(plans):
    layout = {}
    for plan in plans:
        layout = extended(layout, plan, NAMES)
    assert set(layout) == set(NAMES)
    for plan in plans:
        laid = laid_over(plan, layout, NAMES)

        assert {b.name: b.offset for b in laid.buffers if b.name in layout} == {
            name: place.offset for name, place in layout.items()
        }
        assert overlap(laid.buffers) is None
        assert laid.peak == max(b.offset + b.bytes for b in laid.buffers)


def test_a_plan_holds_what_only_others_read(plans):
    whole, gradients = plans
    layout = extended({}, whole, NAMES)
    laid = laid_over(gradients, layout, NAMES)

    more = size(layout) - sum(b.bytes for b in gradients.buffers if b.name in ("w", "v"))
    assert more > 0
    assert (laid.peak, laid.peak_live) == (gradients.peak + more, gradients.peak_live + more)
    live = [sum(b.bytes for b in laid.live(s)) for s in range(len(laid.program.steps))]
    assert max(live) == laid.peak_live


def test_a_layout_grows_at_its_end(plans):
    whole, gradients = plans
    first = extended({}, gradients, NAMES)
    second = extended(first, whole, NAMES)

    assert list(second)[: len(first)] == list(first)
    assert all(second[name] == place for name, place in first.items())


def test_what_is_called_alike_and_not_shared_lies_apart(plans):
    whole, gradients = plans
    layout = extended({}, whole, NAMES)
    laid = laid_over(gradients, layout, ["v"])
    own = next(b.bytes for b in gradients.buffers if b.name == "w")

    assert overlap(laid.buffers) is None
    assert [b.bytes for b in laid.buffers if b.name == "w"] == [layout["w"].bytes, own]
    assert laid.peak == laid_over(gradients, layout, NAMES).peak + own
