"""Two sessions with parameters in common: a step of one is seen by the other."""

import numpy as np
import pytest

import gradtool as gt
from gradtool import api
from gradtool.errors import UsageError
from gradtool.training.graphs import Recipe, graphs_of
from gradtool.training.options import TrainOptions
from gradtool.workloads.grad_options import GradOptions

CRITIC = """critic (float[batch, 4] x) => (float[batch, 1] y) {
    h = MatMul (x, d1)
    s = Add (h, e1)
    r = Relu (s)
    m = MatMul (r, d2)
    y = Add (m, e2)
}"""
FORGER = """forger (float[batch, 3] z) => (float[batch, 1] y) {
    g = MatMul (z, g1)
    a = Tanh (g)
    x = MatMul (a, g2)
    h = MatMul (x, d1)
    s = Add (h, e1)
    r = Relu (s)
    m = MatMul (r, d2)
    y = Add (m, e2)
}"""
FAKE = """fake (float[batch, 3] z) => (float[batch, 4] x) {
    g = MatMul (z, g1)
    a = Tanh (g)
    x = MatMul (a, g2)
}"""
SHAPES = {"g1": (3, 6), "g2": (6, 4), "d1": (4, 8), "e1": (8,), "d2": (8, 1), "e2": (1,)}
BATCH = 5


def weights(*names, dtype=np.float32):
    rng = np.random.default_rng(7)
    found = {n: rng.standard_normal(shape).astype(dtype) for n, shape in SHAPES.items()}
    return {name: found[name] for name in names or SHAPES}


def noise(turn, dtype=np.float32):
    rng = np.random.default_rng(turn)
    z, real = rng.standard_normal((BATCH, 3)), rng.standard_normal((BATCH, 4)) + 2
    return z.astype(dtype), real.astype(dtype)


@pytest.fixture
def pair(model):
    """Training graphs of a forger with a frozen critic, and of the critic."""
    forger = gt.load(model(FORGER, "forger.onnx", **weights()))
    critic = gt.load(model(CRITIC, "critic.onnx", **weights("d1", "e1", "d2", "e2")))
    return (
        gt.grad(forger, loss="bce-logits", wrt=["g*"], optimizer="adam"),
        gt.grad(critic, loss="bce-logits", optimizer="adam"),
    )


def ones(value):
    return np.full((BATCH, 1), value, np.float32)


def alternate(first, second, turns, sync=None):
    """Losses of steps of both in turn; `sync` moves what one has changed into the other."""
    found = []
    for turn in range(turns):
        z, real = noise(turn)
        found.append(second.step({"x": real, "labels": ones(1), "lr": 0.05}).loss)
        if sync is not None:
            sync(second, first, "d*", "e*")
        found.append(first.step({"z": z, "labels": ones(1), "lr": 0.02}).loss)
        found.append(second.evaluate({"x": real, "labels": ones(1)}).loss)
    return found


def test_a_step_of_one_is_seen_by_the_other_as_if_it_were_set_there(pair):
    def copied(source, target, *patterns):
        target.set({n: a for n, a in source.values(*patterns).items() if "_exp" not in n})

    with gt.Session(pair[0]) as a, gt.Session(pair[1]) as b:
        expected = alternate(a, b, 4, copied)
        kept = {**b.values(), **a.values()}
    with gt.Session(pair[0]) as a, gt.Session(pair[1], share=a) as b:
        assert alternate(a, b, 4) == expected
        for name, array in {**b.values(), **a.values()}.items():
            np.testing.assert_array_equal(array, kept[name], err_msg=name)


def test_each_session_counts_its_own_steps_and_has_its_own_state(pair):
    with gt.Session(pair[1]) as a, gt.Session(pair[1], share=a) as b:
        for turn in range(3):
            a.step({"x": noise(turn)[1], "labels": ones(1)})
        b.step({"x": noise(4)[1], "labels": ones(1)})

        found, other = a.values(), b.values()
        assert (found["step"], other["step"]) == (3, 1)
        assert not np.array_equal(found["d1_exp_avg"], other["d1_exp_avg"])
        for name in ("d1", "e1", "d2", "e2"):
            np.testing.assert_array_equal(found[name], other[name])


def test_shared_parameters_lie_once_in_the_one_arena(pair):
    with gt.Session(pair[0]) as a, gt.Session(pair[1]) as b:
        alternate(a, b, 1)
        apart = a.arena_bytes, b.arena_bytes
    with gt.Session(pair[0]) as a, gt.Session(pair[1], share=a) as b:
        alternate(a, b, 1)
        held = b.spans
        assert len({offset for offset, _ in held.values()}) == len(held)
        assert a.arena_bytes == b.arena_bytes < sum(apart)
        free = [
            plan.peak - sum(x.bytes for x in plan.buffers if x.region in ("parameters", "state"))
            for plan in (*a.plans, *b.plans)
        ]
        assert a.arena_bytes == sum(size for _, size in held.values()) + max(free)


def test_the_values_are_those_of_the_session_that_was_there(pair, model):
    other = gt.load(model(CRITIC, "o.onnx", **{n: a + 1 for n, a in weights().items()
                                               if n in ("d1", "e1", "d2", "e2")}))  # fmt: skip
    other = gt.grad(other, loss="bce-logits", optimizer="sgd")
    for steps in (0, 2):
        with gt.Session(pair[1]) as a:
            for turn in range(steps):
                a.step({"x": noise(turn)[1], "labels": ones(1)})
            expected = a.values("d1")["d1"]
            with gt.Session(other, share=a) as b:
                np.testing.assert_array_equal(b.values("d1")["d1"], expected)
                b.step({"x": noise(0)[1], "labels": ones(1), "lr": 0.0})
                np.testing.assert_array_equal(a.values("d1")["d1"], expected)


def test_what_one_sets_the_other_has_and_saves(pair, tmp_path):
    with gt.Session(pair[0]) as a, gt.Session(pair[1], share=a) as b:
        a.set({"d1": np.ones((4, 8), np.float32)})
        assert (b.values("d1")["d1"] == 1).all()
        alternate(a, b, 1)
        b.save(tmp_path / "saved.onnx")
        d1 = a.values("d1")["d1"]

    held = gt.load(tmp_path / "saved.onnx").graph.initializers
    np.testing.assert_array_equal(held["d1"].const_value.numpy(), d1)


def test_either_may_be_closed_first(pair):
    for first in (0, 1):
        a = gt.Session(pair[0])
        sessions = a, gt.Session(pair[1], share=a)
        alternate(*sessions, 1)
        before = sessions[1 - first].values()
        sessions[first].close()
        for name, array in sessions[1 - first].values().items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)
        with pytest.raises(UsageError, match="closed"):
            gt.Session(pair[1], share=sessions[first])
        sessions[1 - first].close()


def test_three_sessions_share_through_one_another(pair):
    with (
        gt.Session(pair[1]) as a,
        gt.Session(pair[1], share=a) as b,
        gt.Session(pair[1], share=b) as c,
    ):
        for session in (a, b, c, b, a):
            session.step({"x": noise(1)[1], "labels": ones(1)})
        assert [int(s.values("step")["step"]) for s in (a, b, c)] == [2, 2, 1]
        d1 = [s.values("d1")["d1"].tobytes() for s in (a, b, c)]
        assert len(set(d1)) == 1


def test_constants_of_one_name_are_shared_only_where_they_are_the_same(model):
    text = "net (float[batch, 4] x) => (float[batch, 1] y) {\n s = Mul (x, k)\n"
    text += " h = MatMul (s, d1)\n y = MatMul (h, d2)\n}"

    def graph(factor, **options):
        held = {**weights("d1", "d2"), "k": np.full(4, factor, np.float32)}
        loaded = gt.load(model(text, f"k{factor}.onnx", **held))
        return gt.grad(loaded, loss="mse", wrt=["d1", "d2"], optimizer="sgd", **options)

    batch = {"x": noise(1)[1], "labels": ones(1), "lr": 0.0}
    with gt.Session(graph(1)) as a, gt.Session(graph(2), share=a) as b:
        with gt.Session(graph(2)) as alone:
            expected = alone.step(batch).loss
        assert a.step(batch).loss != expected
        assert b.step(batch).loss == expected


def test_sums_of_gradients_are_of_one_session_each(model):
    """Both add up gradients of the parameters that they share, and update by their own sums."""
    path = model(CRITIC, "critic.onnx", **weights("d1", "e1", "d2", "e2"))
    recipe = Recipe(
        lambda options: api.differentiated(gt.load(path), options),
        GradOptions(loss="bce-logits", optimizer="adam"),
    )
    graphs = graphs_of(recipe, TrainOptions(), in_two=True)

    def batch(turn):
        return {"x": noise(turn)[1], "labels": ones(1)} | graphs.scaling(1.0)

    how = {"update": graphs.update}
    with gt.Session(graphs.model, **how) as alone:
        for turn in (0, 1):
            alone.step(batch(turn))
            alone.update({"lr": 0.1})
        expected = alone.values("d1")["d1"]
        with gt.Session(graphs.model, share=alone, **how) as other:
            alone.step(batch(2))
            other.step(batch(3))
            alone.forget_gradients()
            assert (other.values("step")["step"], alone.values("step")["step"]) == (0, 2)
            other.update({"lr": 0.0})
            np.testing.assert_array_equal(alone.values("d1")["d1"], expected)
            other.step(batch(3))
            other.update({"lr": 0.1})
            assert alone.values("d1")["d1"].tobytes() != expected.tobytes()


@pytest.mark.parametrize(
    ("other", "options", "message"),
    [
        (FAKE, {"loss": "mse"}, "no parameter in common: g1, g2 here, d1"),
        (
            CRITIC.replace("4] x", "5] x"),
            {"loss": "mse"},
            r"'d1' is float\[5, 8\] here and float\[4",
        ),
    ],
)
def test_what_cannot_be_shared_is_one_line(pair, model, other, options, message):
    held = weights(*(n for n in SHAPES if f" {n})" in other or f"({n}" in other))
    if "5] x" in other:
        held["d1"] = np.ones((5, 8), np.float32)
    graph = gt.grad(gt.load(model(other, "other.onnx", **held)), **options)
    with gt.Session(pair[1]) as a, pytest.raises(UsageError, match=message):
        gt.Session(graph, share=a)


@pytest.mark.extra
def test_a_gan_trains_as_in_torch(model):
    """Twenty rounds in float64: a step of the critic on real and forged, one of the forger."""
    torch = pytest.importorskip("torch")
    held = weights(dtype=np.float64)
    double = [text.replace("float[", "double[") for text in (FORGER, CRITIC, FAKE)]
    forger, critic, fake = (
        gt.load(model(text, f"{n}.onnx", **{k: a for k, a in held.items() if k in text}))
        for n, text in enumerate(double)
    )
    steps = (
        gt.grad(forger, loss="bce-logits", wrt=["g*"], optimizer="adam"),
        gt.grad(critic, loss="bce-logits", optimizer="adam"),
    )
    p = {name: torch.tensor(array, requires_grad=True) for name, array in held.items()}

    def forged(z):
        return torch.tanh(z @ p["g1"]) @ p["g2"]

    def judged(x):
        return torch.relu(x @ p["d1"] + p["e1"]) @ p["d2"] + p["e2"]

    loss = torch.nn.BCEWithLogitsLoss()
    ours = torch.optim.Adam([p["g1"], p["g2"]], lr=0.02)
    theirs = torch.optim.Adam([p["d1"], p["e1"], p["d2"], p["e2"]], lr=0.05)
    with (
        gt.Session(steps[0]) as a,
        gt.Session(steps[1], share=a) as b,
        gt.Session(gt.grad(fake, loss="mean"), share=a) as make,
    ):
        for turn in range(20):
            z, real = noise(turn, np.float64)
            made = make.evaluate({"z": z}).outputs["x"]
            x = np.concatenate([real, made])
            labels = np.repeat([1.0, 0.0], BATCH)[:, None]
            b.step({"x": x, "labels": labels, "lr": 0.05})
            a.step({"z": z, "labels": labels[:BATCH], "lr": 0.02})

            zt, rt = torch.tensor(z), torch.tensor(real)
            theirs.zero_grad()
            loss(judged(torch.cat([rt, forged(zt).detach()])), torch.tensor(labels)).backward()
            theirs.step()
            ours.zero_grad()
            loss(judged(forged(zt)), torch.tensor(labels[:BATCH])).backward()
            ours.step()
        found = {**b.values("d*", "e*"), **a.values("g*")}
    for name, tensor in p.items():
        np.testing.assert_allclose(found[name], tensor.detach().numpy(), rtol=1e-9, atol=1e-11)
