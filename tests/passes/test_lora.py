"""Low-rank adapters: nothing changes before the first update, and nothing but them afterwards."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapted import chains
from conftest import build, trials
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kits import OPTIMIZERS, net

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.graph.training_info import TrainingInfo
from gradtool.passes.lora import Lora

MANY = settings(
    max_examples=trials(25), deadline=None, derandomize=True, database=None,
    phases=[Phase.generate], suppress_health_check=list(HealthCheck),
)  # fmt: skip
SIZES = {"I": 3, "H": 4, "O": 2, "B": 5}
NET = """(float[batch, 3] x) => (float[batch, 2] y) {
    e = Gather (table, i)
    h = MatMul (x, w)
    s = Add (h, e)
    y = Gemm <transB = 1> (s, table, b)
}"""


def adapted(content, **options):
    return gt.grad(gt.load(content), loss="mse:y", lora=options.pop("lora", 2), **options)


def with_labels(training, batch, forward):
    """A batch with something to come near to."""
    y = forward.outputs["y"]
    (labels,) = training.labels
    return batch | {labels: np.roll(y, 1, axis=0) + np.asarray(0.5, y.dtype)}


def run_in_ort(path, feeds, adapter=None):
    import onnxruntime as ort

    options, how = ort.SessionOptions(), ort.RunOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if adapter is not None:
        loaded = ort.LoraAdapter()
        loaded.Load(str(adapter))
        how.add_active_adapter(loaded)
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(["y"], feeds, how)[0]


@pytest.mark.exhaustive
@MANY
@given(chains(), st.integers(1, 3), st.sampled_from((None, 3.0)))
def test_adapters_change_nothing_at_first_and_have_the_gradients_of_differences(drawn, rank, alpha):
    content, batch = drawn
    training = adapted(content, lora=rank, lora_alpha=alpha)
    forward = gt.run(gt.load(content), batch)
    feeds = with_labels(training, batch, forward)
    found = gt.run(training, feeds)
    names = [name for each in TrainingInfo.of(training.model).lora for name in each.names]

    np.testing.assert_array_equal(found.outputs["y"], forward.outputs["y"])
    assert list(found.gradients) == names
    rng = np.random.default_rng(0)
    held = training.model.graph.initializers
    feeds |= {n: rng.standard_normal(held[n].shape.numpy()) / 8 for n in names}
    gradients = gt.run(training, feeds).gradients
    for name in names:
        direction = rng.standard_normal(feeds[name].shape)
        slope = float((gradients[name] * direction).sum())
        steps = (slope_along(training, feeds, name, direction * h) / h for h in (1e-4, 1e-5, 1e-6))
        assert min(abs(each - slope) for each in steps) < 1e-8 * (1 + abs(slope))


def slope_along(training, feeds, name, by):
    """How much the loss grows by a step of an array, of twice that both ways."""
    high, low = (gt.run(training, feeds | {name: feeds[name] + s * by}).loss for s in (1, -1))
    return float(high - low) / 2


@pytest.mark.exhaustive
@MANY
@given(
    chains(np.float32), st.integers(1, 3), st.sampled_from((None, 3.0)), st.booleans(),
    st.sampled_from(OPTIMIZERS),
)  # fmt: skip
def test_trained_merged_and_adapted_agree(tmp_path_factory, drawn, rank, alpha, root, optimizer):
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("lora")
    content, batch = drawn
    (folder / "m.onnx").write_bytes(content)
    before = gt.load(folder / "m.onnx")
    how = {"lora": rank, "lora_alpha": alpha, "rslora": root, "optimizer": optimizer}
    training = adapted(folder / "m.onnx", **how)
    feeds = with_labels(training, batch, gt.run(before, batch))
    feeds["lr"] = np.array(0.05, np.float32)
    with gt.Session(training) as session:
        for _ in range(3):
            session.step(feeds)
        trained = session.evaluate(batch).outputs["y"]
        values = session.values()
        session.save(folder / "merged.onnx")
        (path, _), (adapter, _) = session.save_adapter(folder / "m.lora.onnx")

    names = {name for each in TrainingInfo.of(training.model).lora for name in each.names}
    assert {n for n in values if "lora" not in n} <= {"step"}
    assert training.updates.keys() == names
    near = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(run_in_ort(folder / "merged.onnx", batch), trained, **near)
    np.testing.assert_allclose(run_in_ort(path, batch, adapter), trained, **near)
    np.testing.assert_allclose(
        run_in_ort(path, batch), run_in_ort(folder / "m.onnx", batch), rtol=0, atol=0
    )
    merged = {t.name for t in onnx.load(folder / "merged.onnx").graph.initializer}
    assert merged == set(before.graph.initializers)


def test_what_is_drawn_depends_on_seed_and_name_alone():
    one, other = (
        adapted(net("mlp", SIZES), lora_target=targets, lora_seed=seed).model.graph.initializers
        for targets, seed in ((["w*"], 1), (["w2"], 1))
    )
    again = adapted(net("mlp", SIZES), lora_seed=2).model.graph.initializers

    a = one["w2.lora_A"].const_value.numpy()
    assert a.tobytes() == other["w2.lora_A"].const_value.numpy().tobytes()
    assert (a != again["w2.lora_A"].const_value.numpy()).all()
    assert (np.abs(a) <= 1 / np.sqrt(SIZES["H"])).all()
    assert (one["w2.lora_B"].const_value.numpy() == 0).all()
    assert {n for n in other if "lora" in n} == {"w2.lora_A", "w2.lora_B"}


def test_what_wrt_names_is_trained_as_well(tmp_path):
    (tmp_path / "m.onnx").write_bytes(net("mlp", SIZES))
    training = gt.grad(
        gt.load(tmp_path / "m.onnx"), loss="ce", lora=2, lora_target=["w1"], wrt=["b1", "shift"],
        optimizer="sgd",
    )  # fmt: skip
    batch = {"x": np.ones((4, 3), np.float32), "labels": np.arange(4) % 2}

    assert list(training.updates) == ["w1.lora_A", "w1.lora_B", "b1", "shift"]
    with gt.Session(training) as session:
        session.step(batch | {"lr": 0.5})
        (model, _), _ = session.save_adapter(tmp_path / "m.lora.onnx")
        b1 = session.values("b1")["b1"]
    written = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer}
    assert (written["b1"] == b1).all()
    assert b1.any()


def test_the_memory_of_a_step_is_that_of_adapters():
    """Neither gradients nor state of the weights, whose product with them is never made."""
    text = "net (float[4, 512] x) => (float[4, 512] y) { y = MatMul (x, w) }"
    w = np.ones((512, 512), np.float32)
    model = gt.load(build(text, w=w))
    whole = gt.plan(gt.grad(model, loss="mse:y", optimizer="adam"), kernels="numpy").peak
    small = gt.plan(gt.grad(model, loss="mse:y", optimizer="adam", lora=2), kernels="numpy").peak

    assert whole > 3 * w.nbytes
    assert small < 1.1 * w.nbytes


REFUSED = {
    "table": "no adapter beside it: it is read by Gather",
    "b": "no adapter beside it: it is read by Gemm",
    "i": "no adapter beside it: it is INT64: only floats have gradients",
    "i*": "no adapter beside any of what it matches: i (is INT64)",
    "ww": "no such weight of a MatMul, Gemm or Conv; did you mean 'w'?",
    "zzz*": "no such weight of a MatMul, Gemm or Conv; there are w",
}


@pytest.mark.parametrize("target", REFUSED)
def test_a_target_that_can_have_none_is_refused(target):
    content = build(
        f"net {NET}", table=np.ones((2, 4), np.float32), i=np.array(0), b=np.ones(2, np.float32),
        w=np.ones((3, 4), np.float32),
    )  # fmt: skip
    with pytest.raises(UsageError) as raised:
        adapted(content, lora_target=[target])

    assert f"--lora-target {target}: {REFUSED[target]}" in str(raised.value)


def test_the_usual_targets_are_all_that_can_have_one():
    content = build(
        f"net {NET}", table=np.ones((2, 4), np.float32), i=np.array(0), b=np.ones(2, np.float32),
        w=np.ones((3, 4), np.float32),
    )  # fmt: skip

    assert [each.weight for each in TrainingInfo.of(adapted(content).model).lora] == ["w"]


def test_a_model_without_products_is_refused():
    with pytest.raises(UsageError, match=r"--lora: no such weight .*; there are none"):
        adapted(build("net (float[2] x) => (float[2] y) { y = Mul (x, w) }", w=np.ones(2, "f")))


def test_a_loss_that_depends_on_no_adapter_is_refused():
    text = """net (float[2, 3] x) => (float[2, 3] y, float[2, 3] z) {
        y = Mul (x, g)
        z = MatMul (x, w)
    }"""
    content = build(text, g=np.ones(3, np.float32), w=np.eye(3, dtype=np.float32))
    with pytest.raises(UsageError, match="--lora: the loss depends on no weight"):
        adapted(content)


def test_a_graph_with_gradients_is_refused(run, tmp_path):
    (tmp_path / "m.onnx").write_bytes(net("mlp", SIZES))
    run("grad", "m.onnx", "-o", "g.onnx", "--loss", "ce")
    outcome = run("grad", "g.onnx", "--lora", "2", "--loss", "sum:w2_grad", "-o", "h.onnx")

    assert outcome.code == 2
    assert "--lora: the model holds its gradients already" in outcome.err


def test_grad_says_what_is_adapted(run, tmp_path):
    (tmp_path / "m.onnx").write_bytes(net("mlp", SIZES))
    outcome = run("grad", "m.onnx", "--lora", "2", "--lora-alpha", "3", "--loss", "ce")

    assert "adapters, scaled by 1.5, beside 2 weights: w1, w2\n" in outcome.out
    assert "parameters: 4 of 4" in outcome.out


def test_a_configuration_has_the_same_options(run, tmp_path):
    (tmp_path / "m.onnx").write_bytes(net("mlp", SIZES))
    (tmp_path / "gradtool.toml").write_text(
        '[[case]]\nmodel = "m.onnx"\nlora = 2\nlora-alpha = 3\nlora-target = "w2"\nloss = "ce"\n'
    )
    outcome = run("grad")

    assert "adapters, scaled by 1.5, beside 1 weights: w2\n" in outcome.out
    for line in ("lora = 0", "lora = true", "lora-alpha = 0", 'lora-alpha = "x"'):
        (tmp_path / "gradtool.toml").write_text(f'[[case]]\nmodel = "m.onnx"\n{line}\n')
        assert run("check", "--list").code == 2


@pytest.mark.parametrize(
    ("rank", "alpha", "root", "scale"),
    [(4, None, False, 1), (4, 6, False, 1.5), (4, 6, True, 3), (4, None, True, 2)],
)
def test_the_scale_is_alpha_over_the_rank_or_its_root(rank, alpha, root, scale):
    assert Lora(rank, alpha=alpha, stabilized=root).scale == scale
