"""What may be seen and changed in the course of a step: hooks, kept gradients, scales, NaNs."""

from pathlib import Path

import numpy as np
import pytest

import gradtool as gt
from gradtool.errors import GradtoolError, UsageError

# The gradient of `b` is that of `s`, with which backward goes on; so is that of `c`.
NET = """net (float[2, 3] x) => (float[2, 2] y) {
    h = MatMul (x, w)
    s = Add (h, b)
    t = Add (s, c)
    r = Tanh (t)
    y = MatMul (r, v)
}"""
SAMPLES = Path(__file__).parents[1] / "samples"
RNG = np.random.default_rng(3)
WEIGHTS = {
    "w": RNG.standard_normal((3, 4)).astype("f"),
    "b": RNG.standard_normal((2, 4)).astype("f"),
    "c": RNG.standard_normal((2, 4)).astype("f"),
    "v": RNG.standard_normal((4, 2)).astype("f"),
}
X = {"x": RNG.standard_normal((2, 3)).astype("f")}


@pytest.fixture
def forward(model):
    return gt.load(model(NET, **WEIGHTS))


def stepped(session, batch=X, **options):
    """The parameters after one step by sgd with rate 1, less those before: minus gradients."""
    before = session.values()
    session.step(batch | {"lr": 1.0}, **options)
    return {name: before[name] - array for name, array in session.values().items()}


@pytest.mark.parametrize("optimizer", ["none", "sgd"])
def test_a_hook_sees_each_final_gradient_once(forward, optimizer):
    expected = gt.run(gt.grad(forward, loss="mean:y"), X).gradients
    seen = {}
    with gt.Session(gt.grad(forward, loss="mean:y", optimizer=optimizer)) as session:
        session.on_gradient(lambda name, array: seen.setdefault(name, []).append(array.copy()))
        session.step(X)

    assert set(seen) == set(WEIGHTS)
    for name, arrays in seen.items():
        np.testing.assert_array_equal(*arrays, expected[name])


@pytest.mark.parametrize("name", [*WEIGHTS, "*", "[bc]"])
def test_what_a_hook_leaves_in_a_gradient_is_what_updates_take_and_nothing_else(forward, name):
    training = gt.grad(forward, loss="mean:y", optimizer="sgd")
    with gt.Session(training) as plain, gt.Session(training) as session:
        expected = stepped(plain)
        session.on_gradient(lambda _, array: np.multiply(array, 0, out=array), name)
        found = stepped(session)

    touched = {n for n in WEIGHTS if name in ("*", n) or (name == "[bc]" and n in "bc")}
    for each, moved in found.items():
        wanted = np.zeros_like(moved) if each in touched else expected[each]
        np.testing.assert_allclose(moved, wanted, atol=1e-6, err_msg=each)


def test_a_gradient_that_backward_goes_on_with_after_the_update_is_changed_for_the_update_alone(
    model,
):
    path = model(
        """net (float[2, 3] x) => (float[2, 4] y) {
            h = MatMul (x, w)
            s = Add (h, b)
            y = Tanh (s)
        }""",
        **{name: WEIGHTS[name] for name in ("w", "b")},
    )
    training = gt.grad(gt.load(path), loss="mean:y", optimizer="sgd")
    order = [n.metadata_props["gradtool.stage"] for n in training.model.graph]
    assert "backward" in order[order.index("update") :]  # the update of b comes before that of w
    with gt.Session(training) as plain, gt.Session(training) as session:
        expected = stepped(plain)
        session.on_gradient(lambda _, array: array.fill(0), "b")
        found = stepped(session)

    assert not found["b"].any()
    np.testing.assert_array_equal(found["w"], expected["w"])


@pytest.mark.parametrize("name", [*WEIGHTS, "*"])
def test_what_a_hook_leaves_in_a_gradient_is_the_result(forward, name):
    training = gt.grad(forward, loss="mean:y")
    expected = gt.run(training, X).gradients
    with gt.Session(training) as session:
        session.on_gradient(lambda _, array: np.add(array, 1, out=array), name)
        found = session.step(X).gradients

    for each, gradient in found.items():
        more = 1 if name in ("*", each) else 0
        np.testing.assert_allclose(gradient, expected[each] + more, rtol=1e-6, err_msg=each)


def test_hooks_may_be_removed(forward):
    training = gt.grad(forward, loss="mean:y", optimizer="sgd")
    with gt.Session(training) as plain, gt.Session(training) as session:
        remove = session.on_gradient(lambda _, array: array.fill(0))
        moved = stepped(session)
        remove()
        remove()
        expected, later = stepped(plain), stepped(session)

    assert not any(array.any() for array in moved.values())
    for name, array in later.items():
        np.testing.assert_array_equal(array, expected[name])


def test_steps_are_announced_with_their_inputs_and_told_with_their_results(forward):
    told = []
    with gt.Session(gt.grad(forward, loss="mean:y")) as session:
        session.before_step(lambda inputs: told.append(inputs["x"].copy()))
        session.after_step(lambda result: told.append(result.loss))
        result = session.step(X)

    np.testing.assert_array_equal(told[0], X["x"])
    assert told[1] == result.loss


def test_backward_nodes_are_seen_before_and_after(forward):
    order = []
    with gt.Session(gt.grad(forward, loss="mean:y")) as session:
        session.before_node(lambda node: order.append(("before", node.name)))
        session.after_node(lambda node: order.append(("after", node.name)))
        session.step(X)

    names = [name for when, name in order if when == "before"]
    assert order == [(when, name) for name in names for when in ("before", "after")]
    assert any("Tanh" in name for name in names)
    assert not any(name == "Tanh" for name in names)


def test_a_node_shows_the_arrays_that_it_reads_and_writes(forward):
    seen = []
    with gt.Session(gt.grad(forward, loss="mean:y")) as session:
        session.after_node(seen.append, "*Tanh*/grad*")
        gradients = session.step(X).gradients
        (node,) = seen
        (out,) = node.outputs.values()

        assert node.op.endswith("TanhGrad")
        np.testing.assert_array_equal(out, gradients["b"])


def test_nodes_that_are_computed_again_are_backward_nodes():
    cnn = gt.load(SAMPLES / "cnn.onnx", batch=2)
    rewritten = gt.recompute(gt.grad(cnn), "sqrt")
    stages = {n.name: n.metadata_props["gradtool.stage"] for n in rewritten.model.graph}
    seen = []
    with np.load(SAMPLES / "cnn.npz") as loaded, gt.Session(rewritten) as session:
        session.before_node(lambda node: seen.append(stages[node.name]))
        session.step({name: loaded[name][:2] for name in loaded.files})

    assert set(seen) == {"backward", "recompute"}


# --------------------------------------------------------------- kept gradients


def test_gradients_of_activations_are_kept_where_that_is_asked_for(forward):
    expected = gt.run(gt.grad(forward, loss="mean:y", wrt=["t", "h", "r"]), X).gradients
    training = gt.grad(forward, loss="mean:y", optimizer="sgd")
    with gt.Session(training, keep_gradients=["[thr]"]) as session, gt.Session(training) as plain:
        found = session.step(X).gradients
        plain.step(X)

        assert set(found) == {"t", "h", "r"}
        for name, gradient in found.items():
            np.testing.assert_array_equal(gradient, expected[name])
        for name, array in plain.values().items():
            np.testing.assert_array_equal(array, session.values(name)[name])


def test_gradients_that_updates_take_are_kept_where_that_is_asked_for(forward, tmp_path):
    expected = gt.run(gt.grad(forward, loss="mean:y"), X).gradients
    step = gt.grad(forward, loss="mean:y", optimizer="adamw")
    gt.save(step, tmp_path / "step.onnx")
    for graph in (step, gt.load(tmp_path / "step.onnx")):
        with gt.Session(graph, keep_gradients=["w", "b"]) as session:
            found = session.step(X).gradients

        assert set(found) == {"w", "b"}
        for name, gradient in found.items():
            np.testing.assert_allclose(gradient, expected[name], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_step_draws_the_same_whether_or_not_a_hook_is_put_on_before_it(model, at):
    path = model(
        """net (float[2, 64] x) => (float[2, 64] y) {
            r = Constant <value_float = 0.5> ()
            s = Add (x, b)
            t = Add (s, c)
            y = Dropout (t, r)
        }""",
        **{name: RNG.standard_normal((2, 64)).astype("f") for name in "bc"},
    )
    training = gt.grad(gt.load(path), loss="mean:y", optimizer="sgd", train_mode=True)
    x = {"x": np.ones((2, 64), "f"), "lr": 1.0}
    with gt.Session(training) as plain, gt.Session(training) as session:
        for step in range(5):
            if step == at:
                session.on_gradient(lambda *_: None)
            expected, found = plain.step(x), session.step(x)
            np.testing.assert_array_equal(found.outputs["y"], expected.outputs["y"])
        for name, array in plain.values().items():
            np.testing.assert_array_equal(session.values()[name], array)


def test_a_kept_gradient_may_be_changed_and_nothing_else_changes(forward):
    training = gt.grad(forward, loss="mean:y", optimizer="sgd")
    with gt.Session(training) as plain, gt.Session(training, keep_gradients=["t"]) as session:
        session.on_gradient(lambda _, array: array.fill(7), "t")
        found, expected = stepped(session), stepped(plain)
        for name, moved in found.items():
            np.testing.assert_array_equal(moved, expected[name])
        assert (session.step(X).gradients["t"] == 7).all()


@pytest.mark.parametrize("use", ["keep", "hook", "node"])
def test_a_name_that_nothing_has_is_told(forward, use):
    training = gt.grad(forward, loss="mean:y", optimizer="sgd")
    session = gt.Session(training)
    calls = {
        "keep": lambda: gt.Session(training, keep_gradients=["nothing"]),
        "hook": lambda: session.on_gradient(print, "nothing"),
        "node": lambda: session.after_node(print, "nothing"),
    }
    with pytest.raises(UsageError, match=r"no .*'nothing'.*; there are") as caught:
        calls[use]()
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------- loss scale


@pytest.mark.parametrize("scale", [1.0, 2.0**10, 2.0**-3])
def test_updates_do_not_depend_on_the_loss_scale(forward, scale):
    scaled = gt.grad(forward, loss="mean:y", optimizer="sgd", loss_seed=True)
    plain = gt.grad(forward, loss="mean:y", optimizer="sgd")
    with gt.Session(scaled) as one, gt.Session(plain) as other:
        found, expected = stepped(one, loss_scale=scale), stepped(other)

    for name, moved in found.items():
        np.testing.assert_array_equal(moved, expected[name])


def test_a_loss_scale_saves_gradients_that_float16_has_no_numbers_for(model):
    path = model(
        "net (float16[1, 2] x) => (float16[1, 2] y) { y = Mul (x, w) }",
        w=np.ones((1, 2), np.float16),
    )
    tiny = {"x": np.array([[1, 2]], np.float16)}
    training = gt.grad(gt.load(path), loss="1e-6*sum:y", loss_seed=True)
    seen = []
    with gt.Session(training) as session:
        session.on_gradient(lambda _, array: seen.append(array.copy()))
        found = session.step(tiny, loss_scale=2.0**12).gradients["w"]

    np.testing.assert_allclose(found, 1e-6 * tiny["x"], rtol=0.05)
    np.testing.assert_array_equal(seen, [found])


@pytest.mark.parametrize("scale", [0, -1.0, np.inf, np.nan])
def test_a_loss_scale_is_positive(forward, scale):
    training = gt.grad(forward, loss="mean:y", loss_seed=True)
    with gt.Session(training) as session, pytest.raises(UsageError, match="positive number"):
        session.step(X, loss_scale=scale)


@pytest.mark.parametrize("options", [{}, {"loss_seed": True, "grad_buffers": True}])
def test_a_graph_without_a_place_for_a_loss_scale_says_how_to_make_one(forward, options):
    session = gt.Session(gt.grad(forward, loss="mean:y", **options))
    with pytest.raises(UsageError, match="loss_seed=True"):
        session.step(X, loss_scale=8.0)


# ------------------------------------------------------------------------- NaNs


def test_the_first_nan_is_told_with_the_ranges_of_what_made_it_and_the_step(model):
    path = model(
        """net (float[2] x) => (float[2] y) {
            s = Sub (x, w)
            l = Log (s)
            y = Mul (l, l)
        }""",
        w=np.array([1, 2], np.float32),
    )
    good, bad = {"x": np.array([2, 3], "f")}, {"x": np.array([0.5, 6], "f")}
    with gt.Session(gt.grad(gt.load(path), loss="mean:y"), check_nan=True) as session:
        session.step(good)
        session.step(good)
        with pytest.raises(GradtoolError) as caught:
            session.step(bad)

    said = str(caught.value)
    assert "Log 'Log' is the first node with a NaN, in step 3" in said.replace("'node_", "'")
    assert "'s' from -0.5 to 4" in said
    assert "\n" not in said


def test_a_session_that_checks_trains_to_the_same_bits(forward):
    training = gt.grad(forward, loss="mean:y", optimizer="adamw")
    with gt.Session(training) as plain, gt.Session(training, check_nan=True) as session:
        for _ in range(3):
            assert plain.step(X).loss == session.step(X).loss


def test_a_kernel_that_fails_in_a_watched_step_is_named(forward):
    with gt.Session(gt.grad(forward, loss="mean:y"), check_nan=True) as session:
        executor = session._train.feed(X).enter()

        def fail() -> None:
            raise ValueError("no")

        executor.calls[0] = fail
        with pytest.raises(GradtoolError, match="MatMul"):
            session.step(X)


def test_running_statistics_are_no_gradients():
    """Forward makes their next values: they are neither scaled nor shown to hooks."""
    graph = gt.grad(gt.load(SAMPLES / "cnn.onnx"), optimizer="sgd", loss_seed=True)
    with np.load(SAMPLES / "cnn.npz") as data:
        batch = dict(data)
    seen, found = [], []
    for scale in (1.0, 1024.0):
        with gt.Session(graph) as session:
            session.on_gradient(lambda name, _: seen.append(name))
            session.step(batch, loss_scale=scale)
            found.append(session.values())

    assert not [name for name in seen if "running" in name]
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])
