"""A step in two graphs takes the steps of one."""

import itertools

import numpy as np
import pytest
from trainings import examples, load

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.graph.optimizers import OPTIMIZERS
from gradtool.passes.accumulation import accumulating, updating
from gradtool.passes.averages import add_averages
from gradtool.passes.update_groups import Updates

DATA = examples(8)
ONE = np.float32(1)


def halves(kind="dense", optimizer="sgd", **options):
    made = gt.grad(load(kind), grad_buffers=True, loss_seed=True, **options)
    first = accumulating(made.model)
    return first, updating(first, Updates(optimizer)).model, made


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("kind", "optimizer"), [*itertools.product(["dense", "normed"], OPTIMIZERS[1:])]
)
def test_both_halves_have_the_bits_of_the_whole(kind, optimizer):
    whole = gt.grad(load(kind), optimizer=optimizer, loss_seed=True)
    first, second, _ = halves(kind, optimizer)
    with gt.Session(whole) as one, gt.Session(first, update=second) as two:
        for _ in range(4):
            batch = DATA | {"loss_grad": ONE}
            assert one.step(batch | {"lr": 0.1}).loss == two.step(batch).loss
            two.update({"lr": 0.1})
        values = two.values()
        for name, value in one.values().items():
            assert value.tobytes() == values[name].tobytes(), name
        assert not any(v.any() for n, v in values.items() if n.endswith("_grad_in"))


def test_gradients_add_up_until_the_update():
    first, second, made = halves()
    with gt.Session(first, update=second) as session:
        gradients = gt.run(gt.grad(load()), DATA).gradients
        for turn in (1, 2, 3):
            session.step(DATA, loss_scale=1.0)
            held = session.values("*_grad_in")
            for name, gradient in gradients.items():
                np.testing.assert_allclose(held[f"{name}_grad_in"], turn * gradient, rtol=1e-5)
        session.forget_gradients()
        assert not any(value.any() for value in session.values("*_grad_in").values())
    assert set(made.gradients) == set(gradients)


def test_an_update_takes_its_share_of_the_sums():
    first, second, _ = halves()
    with gt.Session(first, update=second) as session:
        before = session.values("w2")["w2"]
        session.step(DATA, loss_scale=4.0)
        gradient = session.values("w2_grad_in")["w2_grad_in"]
        session.update({"lr": 0.5}, scale=0.25)

        np.testing.assert_array_equal(
            session.values("w2")["w2"], before - gradient * np.float32(0.25) * np.float32(0.5)
        )


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_seen(bad):
    first, second, _ = halves()
    with gt.Session(first, update=second) as session:
        session.step(DATA, loss_scale=1.0)
        assert session.gradients_are_finite()
        held = session.values("b1_grad_in", copy=False)["b1_grad_in"]
        held[2] = bad

        assert not session.gradients_are_finite()


def test_a_session_of_a_whole_step_has_no_sums():
    with (
        gt.Session(gt.grad(load(), optimizer="sgd")) as session,
        pytest.raises(UsageError, match="there are no sums"),
    ):
        session.update({"lr": 0.1})


def test_the_sums_lie_in_the_arena_with_everything_else():
    first, second, _ = halves(optimizer="adamw")
    with gt.Session(first, update=second) as session:
        session.step(DATA, loss_scale=1.0)
        session.update({"lr": 0.1})

        assert session.arena_bytes >= max(plan.peak for plan in session.plans)
        assert [plan.name for plan in session.plans] == ["train", "update"]


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_an_average_follows_its_parameter(decay):
    step = gt.grad(load(), optimizer="adam")
    add_averages(step.model, step.updates, decay)
    with gt.Session(step) as session:
        mean = session.values("w1")["w1"].astype(np.float64)
        for _ in range(5):
            session.step(DATA | {"lr": 0.1})
            mean += (session.values("w1")["w1"] - mean) * (1 - decay)

        np.testing.assert_allclose(session.values("w1_average")["w1_average"], mean, rtol=1e-5)


def test_a_graph_without_averages_cannot_write_them(tmp_path):
    with (
        gt.Session(gt.grad(load(), optimizer="adam")) as session,
        pytest.raises(UsageError, match="keeps no averages"),
    ):
        session.save(tmp_path / "a.onnx", averages=True)
