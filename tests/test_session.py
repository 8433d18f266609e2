"""A session: bound once, stepped many times; the same bits as one run after the other."""

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import gradtool as gt
from gradtool.errors import MissingData, UsageError
from gradtool.exec.binding import held_bytes

NET = """net (float[batch, 6] x) => (float[batch, 3] y) {
    h = MatMul (x, w1)
    s = Add (h, b1)
    n = BatchNormalization (s, gain, shift, mean, var)
    r = Relu (n)
    d = Dropout (r, half)
    m = MatMul (d, w2)
    y = Add (m, b2)
}"""


def weights(dropout=0.0):
    rng = np.random.default_rng(1)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    return {
        "w1": normal(6, 5), "b1": normal(5), "gain": 1 + normal(5), "shift": normal(5),
        "mean": np.zeros(5, np.float32), "var": np.ones(5, np.float32),
        "half": np.float32(dropout), "w2": normal(5, 3), "b2": normal(3),
    }  # fmt: skip


def batch_of(size, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((size, 6)).astype(np.float32),
        "labels": rng.integers(0, 3, size),
    }


@pytest.fixture
def net(model):
    return model(NET, "net.onnx", **weights())


@pytest.fixture
def step(net):
    return gt.grad(gt.load(net), optimizer="adamw", train_mode=True)


class Runs:
    """The same steps by `gt.run`, which plans and binds each time."""

    def __init__(self, training):
        self.training = training
        self.state = json.loads(training.model.metadata_props["gradtool.state"])
        self.held = {}

    def step(self, batch):
        result = gt.run(self.training, batch | self.held)
        self.held = {name: result.outputs[new] for name, new in self.state.items()}
        return result


def test_steps_have_the_bits_of_runs_whatever_the_batch_sizes(step):
    runs = Runs(step)
    with gt.Session(step) as session:
        for turn, size in enumerate((4, 4, 7, 2, 4, 7, 7, 1)):
            batch = batch_of(size, turn) | {"lr": 0.05}

            result, expected = session.step(batch), runs.step(batch)

            assert result.loss == expected.loss
            np.testing.assert_array_equal(result.outputs["y"], expected.outputs["y"])
            for name, array in session.values().items():
                assert array.tobytes() == runs.held[name].tobytes(), name


def test_what_stays_in_the_arena_is_no_output(step):
    with gt.Session(step) as session:
        result = session.step(batch_of(4))

    assert set(result.outputs) == {"y", step.loss}
    assert not result.gradients


def test_gradients_are_results_where_no_optimizer_takes_them(net):
    training = gt.grad(gt.load(net))
    with gt.Session(training) as session:
        result = session.step(batch_of(4))

    expected = gt.run(training, batch_of(4))
    assert list(result.gradients) == list(expected.gradients)
    for name, gradient in result.gradients.items():
        np.testing.assert_array_equal(gradient, expected.gradients[name])


def test_plans_of_the_sizes_used_last_are_kept_within_a_memory(step):
    with gt.Session(step) as session:
        session.step(batch_of(4))
        memory = 2 * held_bytes(session.plans[0])
    with gt.Session(step, plan_memory=memory) as session:
        assert session.plans == ()
        for size in (4, 5, 4, 6):
            session.step(batch_of(size))

        assert [p.name for p in session.plans] == ["train", "train"]
        assert [dict(p.program.dims) for p in session.plans] == [{"batch": 6}, {"batch": 4}]


def test_a_session_of_known_sizes_is_planned_when_it_is_opened(net):
    training = gt.grad(gt.load(net, batch=4))
    with gt.Session(training) as session:
        (plan,) = session.plans

    assert plan.peak == gt.plan(training).peak


def test_plans_share_one_arena_and_one_copy_of_the_parameters(step):
    with gt.Session(step) as session:
        session.step(batch_of(8))
        arena = session._store.arena
        session.step(batch_of(3))
        session.evaluate(batch_of(8))

        assert session._store.arena is arena
        assert arena.size == max(plan.peak for plan in session.plans)
        for view in session.values("w*", copy=False).values():
            assert np.shares_memory(view, arena)


def test_a_larger_batch_takes_the_parameters_along(step):
    runs = Runs(step)
    with gt.Session(step) as session:
        for size in (2, 64, 2):
            assert session.step(batch_of(size)).loss == runs.step(batch_of(size)).loss


def test_where_there_is_no_room_for_a_larger_batch_the_session_goes_on(step, monkeypatch):
    runs = Runs(step)
    with gt.Session(step) as session:
        runs.step(batch_of(2))
        session.step(batch_of(2))
        kept = session.values()
        with monkeypatch.context() as patched:
            patched.setattr("gradtool.exec.available_memory.CHECKED", 4096)
            patched.setattr("gradtool.exec.available_memory.memory", lambda: (4096 * 8, 4096 * 8))
            with pytest.raises(gt.DeviceError, match="no room for an arena"):
                session.step(batch_of(5000))
        for name, array in session.values().items():
            np.testing.assert_array_equal(array, kept[name])

        assert session.step(batch_of(2)).loss == runs.step(batch_of(2)).loss


# ----------------------------------------------------------------- evaluation


def test_evaluation_is_the_forward_model_on_the_parameters_as_they_are(step, tmp_path):
    with gt.Session(step) as session:
        for turn in range(5):
            session.step(batch_of(8, turn) | {"lr": 0.1})
        found = session.evaluate(batch_of(8))
        session.save(tmp_path / "trained.onnx")

    forward = gt.load(tmp_path / "trained.onnx")
    expected = gt.run(forward, {"x": batch_of(8)["x"]}, fetch=["y"]).outputs["y"]
    np.testing.assert_allclose(found.outputs["y"], expected, rtol=1e-6)
    shifted = expected - expected.max(1, keepdims=True)
    chances = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
    loss = -np.log(chances[np.arange(8), batch_of(8)["labels"]]).mean()
    assert found.loss == pytest.approx(loss, rel=1e-5)
    assert not found.gradients


def test_evaluation_changes_nothing(step):
    runs = Runs(step)
    with gt.Session(step) as session:
        for turn in range(3):
            batch = batch_of(6, turn)
            assert session.step(batch).loss == runs.step(batch).loss
            before = session.values()
            session.evaluate(batch_of(3))
            for name, array in session.values().items():
                np.testing.assert_array_equal(array, before[name])


def test_evaluation_without_labels_has_no_loss(step):
    with gt.Session(step) as session:
        found = session.evaluate({"x": batch_of(2)["x"]})

    assert found.loss is None
    assert set(found.outputs) == {"y"}


def test_dropout_drops_in_steps_and_not_in_evaluation(model):
    training = gt.grad(gt.load(model(NET, **weights(dropout=0.5))), train_mode=True)
    with gt.Session(training) as session:
        losses = {session.step(batch_of(64)).loss for _ in range(4)}
        evaluated = {session.evaluate(batch_of(64)).loss for _ in range(4)}

    assert len(losses) > 1
    assert len(evaluated) == 1


def test_a_session_of_a_written_step_trains_and_evaluates(step, tmp_path):
    gt.save(step, tmp_path / "step.onnx")
    with gt.Session(step) as one, gt.Session(gt.load(tmp_path / "step.onnx")) as other:
        for turn in range(3):
            assert one.step(batch_of(4, turn)).loss == other.step(batch_of(4, turn)).loss
        assert one.evaluate(batch_of(4)).loss == pytest.approx(other.evaluate(batch_of(4)).loss)


def test_every_plan_trains_to_the_same_bits(step):
    losses = []
    dims = {"batch": 16}
    for graph in (step, gt.mirror(step, dims=dims), gt.recompute(step, "sqrt", dims=dims)):
        with gt.Session(graph) as session:
            losses.append([session.step(batch_of(16, turn)).loss for turn in range(3)])
            losses[-1].append(session.evaluate(batch_of(16)).loss)

    assert losses[0] == losses[1] == losses[2]


# ------------------------------------------------------------------------ save


def test_the_original_model_is_written_with_the_new_weights(net, step, tmp_path):
    with gt.Session(step) as session:
        for turn in range(3):
            session.step(batch_of(8, turn) | {"lr": 0.1})
        path, size = session.save(tmp_path / "trained.onnx")
        values = session.values()

    assert size == path.stat().st_size
    before, after = onnx.load(net), onnx.load(path)
    assert [t.name for t in after.graph.initializer] == [t.name for t in before.graph.initializer]
    for tensor in after.graph.initializer:
        if tensor.name in values:
            np.testing.assert_array_equal(numpy_helper.to_array(tensor), values[tensor.name])
    changed = {
        new.name
        for old, new in zip(before.graph.initializer, after.graph.initializer, strict=True)
        if numpy_helper.to_array(old).tobytes() != numpy_helper.to_array(new).tobytes()
    }
    assert changed == {"w1", "b1", "gain", "shift", "mean", "var", "w2", "b2"}
    for graph in (before.graph, after.graph):
        del graph.initializer[:], graph.value_info[:]
    assert onnx.printer.to_text(before.graph) == onnx.printer.to_text(after.graph)
    assert before.opset_import == after.opset_import


def test_weights_beside_the_model_stay_beside_it(tmp_path, net):
    proto = onnx.load(net)
    large = numpy_helper.from_array(np.ones((64, 3), np.float32), "w2")
    proto.graph.initializer[7].CopyFrom(large)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((6, 64), "f"), "w1"))
    for place, name in ((1, "b1"), (2, "gain"), (3, "shift"), (4, "mean"), (5, "var")):
        vector = np.linspace(0.5, 1, 64, dtype=np.float32)
        proto.graph.initializer[place].CopyFrom(numpy_helper.from_array(vector, name))
    source = tmp_path / "large.onnx"
    onnx.save(proto, source, save_as_external_data=True, location="large.data", size_threshold=256)

    with gt.Session(gt.grad(gt.load(source), optimizer="sgd")) as session:
        session.step(batch_of(4))
        session.save(tmp_path / "trained.onnx")
        w1 = session.values("w1")["w1"]

    bare = onnx.load(tmp_path / "trained.onnx", load_external_data=False)
    assert any(t.external_data for t in bare.graph.initializer)
    loaded = {t.name: t for t in onnx.load(tmp_path / "trained.onnx").graph.initializer}
    np.testing.assert_array_equal(numpy_helper.to_array(loaded["w1"]), w1)
    assert source.with_name("large.data").exists()


def test_a_file_is_not_written_over_unless_that_is_asked_for(net, step):
    with gt.Session(step) as session:
        session.step(batch_of(4))
        with pytest.raises(UsageError, match="exists"):
            session.save(net)
        session.save(net, force=True)

        trained = gt.load(net).graph.initializers["w1"].const_value.numpy()
        np.testing.assert_array_equal(trained, session.values("w1")["w1"])


# ------------------------------------------------------------------------ feeds


def test_a_parameter_that_is_given_stays(step):
    with gt.Session(step) as session:
        session.step(batch_of(4))
        first = session.step(batch_of(4) | {"w1": weights()["w1"], "lr": 0.0})
        np.testing.assert_array_equal(session.values("w1")["w1"], weights()["w1"])

        assert session.step(batch_of(4) | {"lr": 0.0}).loss == first.loss


def test_the_learning_rate_has_its_default_whenever_it_is_not_given(step):
    runs = Runs(step)
    with gt.Session(step) as session:
        for given in ({}, {"lr": 0.5}, {}, {"lr": np.float32(0.25)}, {}):
            batch = batch_of(4) | given
            assert session.step(batch).loss == runs.step(batch).loss
        np.testing.assert_array_equal(session.values("w1")["w1"], runs.held["w1"])


def test_gradient_buffers_that_are_not_given_are_zero(net):
    training = gt.grad(gt.load(net), grad_buffers=True)
    given = {"b2_grad_in": np.ones(3, np.float32)}
    with gt.Session(training) as session:
        first = session.step(batch_of(4)).gradients["b2"]
        second = session.step(batch_of(4) | given).gradients["b2"]
        third = session.step(batch_of(4)).gradients["b2"]

    np.testing.assert_array_equal(first, third)
    np.testing.assert_allclose(second, first + 1, rtol=1e-6)


def test_anything_with_dlpack_is_an_array(step):
    class Lent:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    batch = batch_of(4)
    with gt.Session(step) as session, gt.Session(step) as other:
        lent = {name: Lent(array) for name, array in batch.items()}
        assert session.step(lent).loss == other.step(batch).loss


@pytest.mark.extra
def test_a_tensor_of_torch_is_an_array(step):
    torch = pytest.importorskip("torch", exc_type=ImportError)
    batch = batch_of(4)
    with gt.Session(step) as session, gt.Session(step) as other:
        lent = {name: torch.from_numpy(array) for name, array in batch.items()}
        assert session.step(lent).loss == other.step(batch).loss


@pytest.mark.parametrize("form", ["csr_matrix", "csc_array", "coo_matrix"])
def test_a_sparse_matrix_is_made_dense_in_its_place(step, form):
    from scipy import sparse

    batch = batch_of(4)
    batch["x"][batch["x"] < 0] = 0
    given = batch | {"x": getattr(sparse, form)(batch["x"])}
    with gt.Session(step) as session, gt.Session(step) as other:
        for _ in range(2):
            assert session.step(given).loss == other.step(batch).loss
    assert gt.run(step, given).loss == gt.run(step, batch).loss


def test_results_are_copies_unless_views_are_asked_for(step):
    with gt.Session(step) as session:
        copied = session.step(batch_of(4))
        kept = copied.outputs["y"].copy()
        view = session.step(batch_of(4, 1), copy=False).outputs["y"]

        assert np.shares_memory(view, session._store.arena)
        np.testing.assert_array_equal(copied.outputs["y"], kept)


# ---------------------------------------------------------------------- bad use


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"label": np.ones(3)}, "batch: no input or parameter 'label'; did you mean 'labels'"),
        (
            {"X": np.ones(3)},
            "batch: no input or parameter 'X'; did you mean 'x'",
        ),
        ({"x": np.ones((4, 6))}, "batch: input 'x' is float64, the model takes float32"),
        ({"x": np.ones((4, 5), "f")}, "input 'x' has size 5 on axis 1, the model takes 6"),
        ({"x": np.ones(6, "f")}, r"input 'x' has shape \[6\], the model takes \[batch,6\]"),
        ({"x": np.ones((3, 6), "f")}, "batch"),
        ({"w1": np.ones((2, 2), "f")}, r"'w1' has shape \[2, 2\], the model takes \[6, 5\]"),
        ({"half": np.float32(0.5)}, "'half' is a constant of this session"),
        ({"x": object()}, "batch: input 'x' is object, the model takes float32"),
        ({"x": [[1], [2, 3]]}, "batch: 'x' is no array"),
    ],
)
def test_what_does_not_fit_is_one_line_and_changes_nothing(step, given, message):
    with gt.Session(step) as session:
        session.step(batch_of(4))
        before = session.values()
        with pytest.raises(UsageError, match=message) as caught:
            session.step(batch_of(4) | given)

        assert "\n" not in str(caught.value)
        for name, array in session.values().items():
            np.testing.assert_array_equal(array, before[name])


def test_an_absent_input_is_named(step):
    with gt.Session(step) as session, pytest.raises(MissingData, match="batch: no input 'labels'"):
        session.step({"x": batch_of(4)["x"]})


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.step(batch_of(4)),
        lambda s: s.evaluate(batch_of(4)),
        lambda s: s.values(),
        lambda s: s.save("x.onnx"),
    ],
)
def test_a_closed_session_says_so(step, use):
    with gt.Session(step) as session:
        session.step(batch_of(4))
    with pytest.raises(UsageError, match="the session is closed"):
        use(session)
    session.close()
    assert "closed" in repr(session)


def test_a_pattern_that_matches_nothing_is_named(step):
    with gt.Session(step) as session, pytest.raises(UsageError, match="did you mean 'w1'"):
        session.values("w1_")


def test_a_session_of_nowhere_cannot_be_saved(step, tmp_path):
    step.model.meta.pop("gradtool.path")
    with gt.Session(step) as session, pytest.raises(UsageError, match="nothing tells which model"):
        session.save(tmp_path / "x.onnx")
