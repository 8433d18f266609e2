"""Tensors that a session sets: what is frozen, statistics, constants, state."""

import numpy as np
import pytest
from test_session import NET, batch_of, weights

import gradtool as gt
from gradtool import api
from gradtool.errors import UsageError
from gradtool.training.callbacks import Watcher
from gradtool.training.graphs import Recipe, graphs_of
from gradtool.training.options import TrainOptions
from gradtool.workloads.grad_options import GradOptions

LONE = """net (float[batch, 6] x) => (float[batch, 1] y) {
    h = MatMul (x, w1)
    r = Relu (h)
    m = MatMul (r, w2)
    y = Add (m, b2)
}"""
HEAD = {"wrt": ["w2"], "optimizer": "adam", "loss": "ce:y"}


def lone_weights():
    rng = np.random.default_rng(2)
    shapes = {"w1": (6, 5), "w2": (5, 1), "b2": (1,)}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def step_of(path, **options):
    with pytest.warns(gt.GradtoolWarning):
        return gt.grad(gt.load(path), train_mode=True, **{**HEAD, **options})


@pytest.fixture
def net(model):
    return model(NET, "net.onnx", **weights())


def test_what_is_frozen_may_be_set_and_steps_go_on_with_it(net, model):
    new = {name: array + 1 for name, array in weights().items() if name in ("w1", "mean", "gain")}
    fresh = step_of(model(NET, "new.onnx", **{**weights(), **new}))
    with gt.Session(step_of(net)) as session, gt.Session(fresh) as other:
        session.set(new)
        for turn in range(3):
            found, expected = session.step(batch_of(4, turn)), other.step(batch_of(4, turn))
            assert found.loss == expected.loss

        for name, array in other.values().items():
            np.testing.assert_array_equal(session.values(name)[name], array, err_msg=name)
        assert session.arena_bytes == other.arena_bytes
        assert session.evaluate(batch_of(3)).loss == other.evaluate(batch_of(3)).loss


def test_what_is_set_before_the_first_step_waits_for_it(net):
    w1 = np.ones((6, 5), np.float32)
    with gt.Session(step_of(net)) as early, gt.Session(step_of(net)) as late:
        early.set({"w1": w1})
        late.step(batch_of(4) | {"lr": 0.0})
        late.set({"w1": w1, "step": 0})
        w1[:] = 7

        assert (early.values("w1")["w1"] == 1).all()
        assert early.step(batch_of(2)).loss == late.step(batch_of(2)).loss


def test_values_have_what_was_set_and_saving_writes_it(net, tmp_path):
    with gt.Session(step_of(net)) as session:
        before = set(session.values())
        session.set({"w1": np.zeros((6, 5)).tolist(), "mean": np.ones(5, np.float32)})
        assert set(session.values()) == {*before, "w1", "mean"}
        session.save(tmp_path / "set.onnx")
        session.step(batch_of(4))
        session.save(tmp_path / "stepped.onnx")

    for name in ("set.onnx", "stepped.onnx"):
        held = gt.load(tmp_path / name).graph.initializers
        assert (held["w1"].const_value.numpy() == 0).all()
        assert (held["mean"].const_value.numpy() == 1).all()


def test_a_step_may_set_what_is_frozen_as_well(net):
    with gt.Session(step_of(net)) as session, gt.Session(step_of(net)) as other:
        w1 = {"w1": np.ones((6, 5), np.float32)}
        other.set(w1)
        assert session.step(batch_of(4) | w1).loss == other.step(batch_of(4)).loss
        assert list(session.values()) == list(other.values())


def test_a_frozen_parameter_of_one_element_is_no_constant(model):
    path = model(LONE, "lone.onnx", **lone_weights())
    step = gt.grad(gt.load(path), loss="mse", wrt=["w1"], optimizer="sgd")
    batch = {**batch_of(4), "labels": np.zeros((4, 1), np.float32)}
    with gt.Session(step) as session:
        first = session.step(batch | {"lr": 0.0}).outputs["y"]
        session.set({"b2": [lone_weights()["b2"][0] + 2]})
        again = session.step(batch | {"lr": 0.0}).outputs["y"]

    np.testing.assert_allclose(again, first + 2, rtol=1e-5)


def test_freezing_a_parameter_of_one_element_takes_no_byte_more_than_a_constant(model):
    path = model(LONE, "lone.onnx", **lone_weights())
    training = gt.grad(gt.load(path), loss="mse", wrt=["w1"])
    frozen = gt.plan(training, dims={"batch": 4}).peak
    del training.model.metadata_props["gradtool.frozen"]

    assert frozen == gt.plan(training, dims={"batch": 4}).peak


SCALED = """net (float[batch, 6] x) => (float[batch, 3] y) {
    s = Mul (x, scale)
    z = Mul (s, mask)
    k = Cast <to = 1> (keep)
    t = Mul (z, k)
    y = MatMul (t, w)
}"""


@pytest.mark.parametrize("name", ["mask", "scale"])
def test_a_constant_that_nothing_was_computed_from_is_planned_anew(model, tmp_path, name):
    rng = np.random.default_rng(3)
    held = {
        "scale": np.float32(2), "mask": np.ones(6, np.float32), "keep": np.arange(6) % 2 + 1,
        "w": rng.standard_normal((6, 3)).astype(np.float32),
    }  # fmt: skip
    new = {name: (held[name] * 3).astype(held[name].dtype)}

    def session_of(weights, path):
        loaded = gt.load(model(SCALED, path, **weights))
        return gt.Session(gt.grad(loaded, wrt=["w"], optimizer="sgd", loss="ce"))

    with session_of(held, "a.onnx") as session, session_of({**held, **new}, "b.onnx") as other:
        session.step(batch_of(4) | {"lr": 0.0})
        with pytest.raises(UsageError, match="made for the value"):
            session.set({"keep": held["keep"] + 1})  # its Cast was computed ahead
        session.set(new)
        assert session.step(batch_of(4)).loss == other.step(batch_of(4)).loss
        session.save(tmp_path / "set.onnx")

    found = gt.load(tmp_path / "set.onnx").graph.initializers[name].const_value.numpy()
    np.testing.assert_array_equal(found, new[name])


def test_a_target_network_follows_slowly(net):
    with (
        gt.Session(gt.grad(gt.load(net), **HEAD | {"wrt": None})) as online,
        gt.Session(step_of(net)) as target,
    ):
        for turn in range(3):
            online.step(batch_of(4, turn))
        before, after = target.values("w1")["w1"], online.values("w1")
        target.set(after, rate=0.25)

        expected = 0.75 * before.astype(float) + 0.25 * after["w1"]
        np.testing.assert_allclose(target.values("w1")["w1"], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "rate", "message"),
    [
        ({"w9": 1.0}, 1.0, "no parameter, state or constant 'w9'"),
        ({"x": np.ones((4, 6), np.float32)}, 1.0, "no parameter, state or constant 'x'"),
        ({"w1": np.ones((5, 6), np.float32)}, 1.0, r"shape \[5, 6\], the model takes \[6, 5\]"),
        ({"w1": np.ones((6, 5))}, 1.0, "is float64, the model takes float32"),
        ({"w1": np.ones((6, 5), np.float32)}, 0.0, "above 0 and at most 1"),
        ({"step": 3}, 0.5, "only floats"),
    ],
)
def test_what_cannot_be_set_is_one_line_and_changes_nothing(net, values, rate, message):
    with gt.Session(step_of(net)) as session:
        session.step(batch_of(4))
        before = session.values("*")
        with pytest.raises(UsageError, match=message):
            session.set({"b1": np.full(5, 9, np.float32), **values}, rate=rate)

        for name, array in session.values("*").items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)


def test_a_closed_session_sets_nothing(net):
    session = gt.Session(step_of(net))
    session.close()
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.set({"w1": np.ones((6, 5), np.float32)})


def test_checkpoints_keep_what_is_set_and_go_on_with_it(net, tmp_path):
    """A watcher that moves frozen weights, as a mean teacher does, ends in the same bits."""

    class Moves(Watcher):
        def __init__(self, trainer):
            self.trainer = trainer

        def stepped(self, step, *_rest):
            self.trainer.session.set({"b1": np.full(5, step / 8, np.float32)})

    data = {**batch_of(24)}

    def fit(steps, run, **how):
        options = {"steps": steps, "batch": 4, "optimizer": "adam", "wrt": ["w*"], "loss": "ce:y"}
        with gt.Trainer(net, **options) as trainer:
            trainer.fit(data, run=tmp_path / run, watcher=Moves(trainer), **how)
            return trainer.session.values()

    fit(3, "parts")
    whole, parts = fit(6, "whole"), fit(6, "parts", resume=True)

    assert list(whole) == list(parts)
    assert (whole["b1"] == 6 / 8).all()
    for name, array in whole.items():
        np.testing.assert_array_equal(array, parts[name], err_msg=name)


def test_sums_of_gradients_go_on_with_what_is_set(net):
    recipe = Recipe(
        lambda options: api.differentiated(gt.load(net), options),
        GradOptions(loss="ce:y", wrt=["w2"], optimizer="sgd"),
    )
    graphs = graphs_of(recipe, TrainOptions(), in_two=True)
    batch = batch_of(4) | graphs.scaling(1.0)
    with gt.Session(graphs.model, update=graphs.update) as session:
        first = session.step(batch).loss
        session.set({"w1": np.zeros((6, 5), np.float32)})
        assert session.step(batch).loss != first
        session.update({"lr": 0.1})
        assert set(session.values()) >= {"w1", "w2"}
