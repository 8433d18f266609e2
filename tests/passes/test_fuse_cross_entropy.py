"""Cross-entropy of many classes becomes one node with its layer: the same loss and gradients."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from class_heads import CLASSES, draw, draw_few_bits
from conftest import build, sampled, swept

import gradtool as gt
from gradtool.operators import losses as limits
from gradtool.ops.attention import body_rows
from gradtool.ops.loss import layers
from gradtool.passes import fuse_cross_entropy

HEADER = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>'


@pytest.fixture(autouse=True)
def blocks_of_few(monkeypatch):
    """Layers of any size are fused, in several blocks."""
    monkeypatch.setattr(limits, "MANY_CLASSES", 2)
    monkeypatch.setattr(fuse_cross_entropy, "SCORES", 0)
    for name in ("SCORES", "CLASSES", "EVEN"):
        monkeypatch.setattr(layers, name, 4)
    monkeypatch.setattr(body_rows, "SCORES", 1)
    monkeypatch.setattr(body_rows, "ROWS", 3)


def count(training, op="LinearCrossEntropy"):
    return sum(node.op_type == op for node in training.model.graph)


def pair(made, model, **options):
    """The training graph as it is written, and fused."""
    how = {"loss": made.loss, "only_loss": True} | options
    plain = gt.grad(gt.load(model), fuse_loss=False, **how)
    fused = gt.grad(gt.load(model), **how)
    assert (count(plain), count(fused)) == (0, 1), made.form
    return plain, fused


def same(found, expected, tolerance):
    np.testing.assert_allclose(found.loss, expected.loss, rtol=tolerance, atol=tolerance)
    assert found.gradients.keys() == expected.gradients.keys()
    for name, gradient in expected.gradients.items():
        size = max(1.0, float(np.max(np.abs(gradient), initial=0)))
        error = float(np.max(np.abs(found.gradients[name] - gradient), initial=0))
        assert error <= tolerance * size, name


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", sampled(range(240)))
def test_gradients_are_those_of_the_plain_form_in_float64(seed):
    made, model = draw(seed)
    plain, fused = pair(made, model)
    same(gt.run(fused, made.feeds), gt.run(plain, made.feeds), 1e-12)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kernels", ["numpy", "native"])
@pytest.mark.parametrize("seed", sampled(range(300, 340)))
def test_float32_differs_by_rounding(seed, kernels):
    made, model = draw(seed, np.float32)
    plain, fused = pair(made, model)
    found = gt.run(fused, made.feeds, kernels=kernels, measure=True, check_arena=True)
    same(found, gt.run(plain, made.feeds), 3e-5)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kernels", ["numpy", "native"])
@pytest.mark.parametrize("seed", sampled(range(500, 560)))
def test_heads_of_few_bits_differ_by_rounding(seed, kernels):
    made, model = draw_few_bits(seed)
    plain, fused = pair(made, model)
    found = gt.run(fused, made.feeds, kernels=kernels, measure=True, check_arena=True)
    same(found, gt.run(plain, made.feeds), 3e-5)


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", sampled(range(500, 560)))
def test_heads_of_few_bits_are_those_of_decoded_weights_in_float64(seed):
    made, model = draw_few_bits(seed)
    exact, decoded = draw_few_bits(seed, np.float64)
    _, fused = pair(made, model)
    wide = gt.grad(gt.load(decoded), loss=exact.loss, only_loss=True, no_grad=["w"])
    same(gt.run(fused, made.feeds), gt.run(wide, exact.feeds), 1e-4)


@pytest.mark.parametrize("frozen", ["w", "gain"])
def test_only_the_gradients_that_are_asked_for_are_made(frozen):
    made, model = draw(1, tied=False, product="Transpose", adapter=False)
    plain, fused = pair(made, model, no_grad=[frozen])
    node = next(n for n in fused.model.graph if n.op_type == "LinearCrossEntropyGrad")
    assert frozen not in fused.gradients
    assert len(node.outputs) == 1 + made.form["bias"]
    same(gt.run(fused, made.feeds), gt.run(plain, made.feeds), 1e-12)


@pytest.mark.sample(3)
@pytest.mark.stock
@pytest.mark.parametrize("drawn", [draw, draw_few_bits])
@pytest.mark.parametrize("seed", swept(32, 12))
def test_stock_onnxruntime_runs_the_written_blocks(seed, drawn, tmp_path):
    made, model = drawn(400 + seed, np.float32)
    plain, fused = pair(made, model)
    path = tmp_path / "written.onnx"
    gt.save(fused, path)
    written = onnx.load(path)
    assert {node.domain for node in written.graph.node} == {""}
    assert sum(node.op_type == "Scan" for node in written.graph.node) == 2
    loaded = gt.load(path)
    assert sum(n.op_type == "LinearCrossEntropy" for n in loaded.graph) == 1
    expected = gt.run(plain, made.feeds)
    same(gt.run(loaded, made.feeds, engine="ort"), expected, 3e-5)
    same(gt.run(loaded, made.feeds), expected, 3e-5)


def net(sizes="N", weights=None, body="MatMul (x, w)", classes=CLASSES):
    text = f"net (float[{sizes}, 4] x) => (float[{sizes}, {classes}] logits) {{ logits = {body} }}"
    rng = np.random.default_rng(0)
    given = {"w": rng.normal(size=(4, CLASSES)).astype(np.float32)} if "w)" in body else {}
    return gt.load(build(text, HEADER, **given | (weights or {})))


def few_bits(sizes="N", said="NBits <K = 4, N = 11, bits = 4, block_size = 16>", classes=CLASSES):
    rng = np.random.default_rng(0)
    shape, rows = ((classes, 1, 8), classes) if "NBits" in said else (2 * classes, 2 * classes)
    steps = rng.uniform(0.1, 0.3, rows).astype(np.float32)
    given = {"codes": rng.integers(0, 256, shape, np.uint8), "steps": steps}
    return net(sizes, given, f"com.microsoft.MatMul{said} (x, codes, steps)", classes)


@pytest.mark.parametrize(
    ("said", "classes", "fused"),
    [
        ("Bnb4 <K = 4, N = 11, quant_type = 1, block_size = 2>", 11, 1),
        ("Bnb4 <K = 22, N = 4, quant_type = 1, block_size = 2, transB = 0>", 22, 0),
    ],
)
def test_matrices_of_few_bits_are_fused_where_their_rows_are_classes(said, classes, fused):
    how = {"loss": "ce:logits", "only_loss": True, "input_grad": ["x"]}
    plain, made = (gt.grad(few_bits("N", said, classes), fuse_loss=f, **how) for f in (False, True))
    assert count(made) == fused
    rng = np.random.default_rng(6)
    feeds = {"x": rng.normal(size=(3, 4)).astype(np.float32), "labels": rng.integers(0, CLASSES, 3)}
    for kernels in ("numpy", "native"):
        same(gt.run(made, feeds, kernels=kernels), gt.run(plain, feeds), 1e-5)


def test_scales_of_few_bits_have_no_gradient():
    with pytest.raises(gt.NotDifferentiable, match="frozen"):
        gt.grad(few_bits(), loss="ce:logits", only_loss=True, wrt=["steps"])


@pytest.mark.stock
@pytest.mark.parametrize("sizes", ["N", "B, S"])
def test_open_sizes_are_written_once_for_all(sizes, tmp_path):
    path = tmp_path / "open.onnx"
    options = {"loss": "ce:logits@ignore=-100", "only_loss": True}
    gt.save(gt.grad(net(sizes), **options), path)
    plain = gt.grad(net(sizes), fuse_loss=False, **options)
    rng = np.random.default_rng(1)
    for lead in ([1, 3], [5, 2]):
        shape = lead if "S" in sizes else lead[:1]
        labels = rng.integers(0, CLASSES, shape)
        labels.reshape(-1)[:1] = -100 if labels.size > 1 else 0
        feeds = {"x": rng.normal(size=(*shape, 4)).astype(np.float32), "labels": labels}
        expected = gt.run(plain, feeds)
        same(gt.run(gt.load(path), feeds, engine="ort"), expected, 3e-5)
        same(gt.run(gt.load(path), feeds), expected, 3e-5)


def test_who_reads_the_scores_keeps_them_whole():
    assert count(gt.grad(net(), loss="ce:logits")) == 0
    assert count(gt.grad(net(), loss="ce:logits", only_loss=True)) == 1
    several = gt.grad(net(), loss=["ce:logits", "0.1*mean:logits"], only_loss=True)
    assert count(several) == 0
    assert count(gt.grad(net(), loss="ce:logits", only_loss=True, fuse_loss=False)) == 0


def test_few_classes_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(limits, "MANY_CLASSES", CLASSES + 1)
    assert count(gt.grad(net(), loss="ce:logits", only_loss=True)) == 0


def test_nothing_is_fused_where_a_block_holds_all_scores(monkeypatch):
    monkeypatch.setattr(fuse_cross_entropy, "SCORES", 10 * CLASSES)
    fused = {rows: gt.grad(net(rows), loss="ce:logits", only_loss=True) for rows in (10, 11, "N")}
    assert {rows: count(each) for rows, each in fused.items()} == {10: 0, 11: 1, "N": 1}


def test_labels_that_all_are_ignored_have_no_gradient():
    options = {"loss": "ce:logits@ignore=-100", "only_loss": True}
    feeds = {"x": np.ones((3, 4), np.float32), "labels": np.full(3, -100)}
    for kernels in ("numpy", "native"):
        found = gt.run(gt.grad(net(), **options), feeds, kernels=kernels)
        assert np.isnan(found.loss)
        assert not found.gradients["w"].any()


@pytest.mark.parametrize("kernels", ["numpy", "native"])
@pytest.mark.parametrize("label", [CLASSES, -3])
def test_a_label_that_is_no_class_is_refused(label, kernels):
    training = gt.grad(net(), loss="ce:logits@ignore=-100", only_loss=True)
    feeds = {"x": np.ones((2, 4), np.float32), "labels": np.array([0, label])}
    with pytest.raises(gt.UsageError, match="label"):
        gt.run(training, feeds, kernels=kernels)


@pytest.mark.parametrize("coded", [False, True])
def test_the_planned_peak_has_no_scores(coded, monkeypatch):
    monkeypatch.undo()
    rows, classes, width = 512, 8192, 16
    weights = {"w": np.zeros((width, classes), np.float32)}
    product = "MatMul (x, w)"
    if coded:
        weights = {"w": np.zeros((classes, 1, 8), np.uint8), "s": np.ones(classes, np.float32)}
        said = f"<K = {width}, N = {classes}, bits = 4, block_size = 16>"
        product = f"com.microsoft.MatMulNBits {said} (x, w, s)"
    text = f"net (float[{rows}, {width}] x) => (float[{rows}, {classes}] y) {{ y = {product} }}"
    model = build(text, HEADER, **weights)
    how = {"loss": "ce:y", "only_loss": True, "input_grad": ["x"]}
    plain, fused = (gt.plan(gt.grad(gt.load(model), fuse_loss=f, **how)) for f in (False, True))
    assert plain.total > 4 * rows * classes > 3 * fused.total


def half():
    """Scores of half precision that a cast takes to float32."""
    w = np.random.default_rng(0).normal(size=(4, CLASSES)).astype(np.float16)
    text = f"net (float16[N, 4] x) => (float16[N, {CLASSES}] y) {{ y = MatMul (x, w) }}"
    return gt.load(build(text, HEADER, w=w))


@pytest.mark.parametrize("optimizer", ["none", "sgd"])
def test_half_precision_takes_its_losses_in_float32(optimizer):
    rng = np.random.default_rng(2)
    feeds = {"x": rng.normal(size=(6, 4)).astype(np.float16), "labels": rng.integers(0, CLASSES, 6)}
    how = {"loss": "ce:y", "only_loss": True, "optimizer": optimizer}
    if optimizer != "none":
        feeds["lr"] = np.float32(1)
    plain, fused = (gt.grad(half(), fuse_loss=f, **how) for f in (False, True))
    assert count(fused) == 1
    expected, found = gt.run(plain, feeds), gt.run(fused, feeds)
    assert abs(found.loss - expected.loss) < 3e-3
    for name, array in (expected.outputs | expected.gradients).items():
        other = (found.outputs | found.gradients)[name]
        assert other.dtype == array.dtype
        assert np.max(np.abs(other.astype(np.float64) - array)) < 3e-3


@pytest.mark.parametrize("loss", ["ce:logits@ignore=-100", "ce:logits@weight=shares,smoothing=0.1"])
def test_micro_batches_come_to_what_a_whole_batch_does(loss):
    rng = np.random.default_rng(3)
    data = {
        "x": rng.normal(size=(12, 4)).astype(np.float32),
        "labels": rng.integers(0, CLASSES, 12),
    }
    if "ignore" in loss:
        data["labels"][[0, 1, 2, 7]] = -100
    shares = rng.uniform(0.2, 2, CLASSES).astype(np.float32)
    losses = {}
    for parts in (1, 3):
        for fuse in (True, False):
            with gt.Trainer(
                net(weights={"shares": shares}), loss=loss, only_loss=True, fuse_loss=fuse,
                optimizer="sgd", lr=0.5, epochs=2, batch=6, micro_batches=parts, shuffle=False,
            ) as trainer:  # fmt: skip
                losses[parts, fuse] = [float(each) for each in trainer.fit(data).losses]
    expected = losses.pop((1, False))
    for found in losses.values():
        np.testing.assert_allclose(found, expected, rtol=2e-5)


@pytest.mark.extra
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighed", [False, True])
def test_the_loss_is_that_of_pytorch(weighed, smoothing):
    torch = pytest.importorskip("torch")
    form = {
        "loss": "ce", "product": "Transpose", "bias": True, "scale": "", "cap": 1.5, "tied": False,
        "adapter": False, "places": True, "ignore": -100, "weight": weighed, "smoothing": smoothing,
        "shift": 1, "counts": "",
    }  # fmt: skip
    made, model = draw(7, **form)
    _, fused = pair(made, model)
    found = gt.run(fused, made.feeds)
    w, bias, gain = (
        torch.tensor(made.weights[n], requires_grad=True) for n in ("w", "bias", "gain")
    )
    scores = 1.5 * torch.tanh(((torch.tensor(made.feeds["x"]) * gain) @ w.T + bias) / 1.5)
    shares = torch.tensor(made.weights["shares"]) if weighed else None
    loss = torch.nn.functional.cross_entropy(
        scores[:, :-1].reshape(-1, CLASSES), torch.tensor(made.feeds["labels"])[:, 1:].reshape(-1),
        weight=shares, label_smoothing=smoothing,
    )  # fmt: skip
    loss.backward()
    assert np.isclose(found.loss, loss.item(), rtol=1e-12)
    for name, parameter in {"w": w, "bias": bias, "gain": gain}.items():
        np.testing.assert_allclose(found.gradients[name], parameter.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize("loss", ["ce:logits", "ce:logits@ignore=-100", "ce:logits@smoothing=0.1"])
def test_labels_of_data_are_held_to_the_classes(loss):
    data = {"x": np.ones((4, 4), np.float32), "labels": np.array([0, 1, CLASSES, 2])}
    how = {"loss": loss, "only_loss": True, "optimizer": "sgd", "epochs": 1, "batch": 4}
    refused = pytest.raises(gt.UsageError, match=f"takes 0 to {CLASSES - 1}")
    with gt.Trainer(net(), **how) as trainer, refused:
        trainer.fit(data)


def test_labels_that_are_drawn_are_classes():
    training = gt.grad(net(5), loss="ce:logits", only_loss=True)
    assert np.isfinite(gt.run(training).loss)


@pytest.mark.parametrize(("settings", "fused"), [("", 1), (",smoothing=0.1", 0)])
def test_weights_of_classes_have_their_gradient(settings, fused):
    shares = np.random.default_rng(4).uniform(0.2, 2, CLASSES).astype(np.float32)
    how = {"loss": f"ce:logits@weight=shares{settings}", "only_loss": True, "wrt": ["shares", "w"]}
    made = [gt.grad(net(weights={"shares": shares}), fuse_loss=f, **how) for f in (False, True)]
    assert count(made[1]) == fused
    feeds = {"x": np.eye(4, dtype=np.float32), "labels": np.array([1, 1, 5, 10])}
    same(gt.run(made[1], feeds), gt.run(made[0], feeds), 3e-6)


@pytest.mark.parametrize("layer", [net, few_bits])
@pytest.mark.parametrize("optimizer", ["none", "adamw"])
def test_adapters_beside_the_layer_are_trained_without_its_scores(optimizer, layer):
    how = {
        "loss": "ce:logits", "only_loss": True, "lora": 2, "lora_alpha": 3.0,
        "optimizer": optimizer,
    }  # fmt: skip
    plain, fused = (gt.grad(layer("N, 3"), fuse_loss=f, **how) for f in (False, True))
    assert count(fused) == 1
    node = next(n for n in fused.model.graph if n.op_type == "LinearCrossEntropyGrad")
    assert len(node.outputs) == 2
    rng = np.random.default_rng(5)
    feeds = {"x": rng.normal(size=(2, 3, 4)).astype(np.float32)}
    feeds["labels"] = rng.integers(0, CLASSES, (2, 3))
    if optimizer != "none":
        feeds["lr"] = np.float32(0.1)
    for kernels in ("numpy", "native"):
        expected, found = (gt.run(each, feeds, kernels=kernels) for each in (plain, fused))
        assert np.isclose(found.loss, expected.loss)
        made, other = ({**each.outputs, **each.gradients} for each in (expected, found))
        assert made.keys() == other.keys()
        for name, array in made.items():
            np.testing.assert_allclose(other[name], array, rtol=2e-4, atol=2e-6)
