"""Losses of several outputs, of rare classes and of embeddings, held against PyTorch in float64."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import build
from loss_formulas import THEIRS, C

import gradtool as gt
from gradtool.errors import UsageError, UserCodeError

N = 6


SETTINGS = {
    "focal": [{}, {"gamma": 1.5}, {"ignore": 2}, {"weight": "cw"},
              {"ignore": -100, "weight": "cw"}],
    "focal-logits": [{}, {"gamma": 1.5, "alpha": 0.6}],
    "dice": [{}, {"smooth": 0.5}, {"ignore": 2}, {"ignore": 255}],
    "dice-logits": [{}, {"smooth": 0.5}],
    "triplet": [{}, {"margin": 2.0}],
    "contrastive": [{}, {"T": 0.5}],
    "distill": [{}, {"T": 1.0}, {"T": 4.0}],
    "bce-logits": [{"ignore": -1}, {"smoothing": 0.2}, {"weight": "cw"},
                   {"ignore": -1, "smoothing": 0.1, "weight": "cw"}],
}  # fmt: skip
MIXED = ("triplet", "contrastive")  # examples of a batch
CASES = [
    pytest.param(kind, said, sizes, id=f"{kind}-{said}-{len(sizes)}")
    for kind, each in SETTINGS.items()
    for said in each
    for sizes in ([(N, C)] if kind in MIXED else [(N, C), (N, 3, C)])
]
WEIGHTS = np.array([1, 5, 0.25, 2])


def model_of(sizes):
    """`y` and `z`, products of the input and a weight each; class weights lie beside them."""
    dims = ", ".join(("N", *map(str, sizes[1:])))
    text = (
        f"g (double[{dims}] x) => (double[{dims}] y, double[{dims}] z) "
        "{ y = MatMul (x, w) z = MatMul (x, v) }"
    )
    w, v = (np.random.default_rng(seed).normal(size=(C, C)) for seed in (5, 6))
    return gt.load(build(text, w=w, v=v, cw=WEIGHTS))


def given(kind, said, sizes):
    rng = np.random.default_rng(3)
    x = rng.normal(size=sizes)
    if kind in ("contrastive", "distill"):
        return x, None
    if kind.endswith("-logits"):
        labels = rng.integers(0, 2, sizes).astype(float)
    else:
        labels = (
            rng.integers(0, C, sizes[:-1]) if kind != "triplet" else np.array([0, 0, 1, 1, 2, 0])
        )
    if "ignore" in said:
        labels[rng.random(labels.shape) < 0.3] = said["ignore"]
        labels.flat[0] = 1
    return x, labels


def loss_of(kind, said):
    of = "y,z" if kind in ("contrastive", "distill") else "y"
    settings = ",".join(f"{key}={value}" for key, value in said.items())
    return f"{kind}:{of}" + (f"@{settings}" if settings else "")


@pytest.mark.extra
@pytest.mark.parametrize(("kind", "said", "sizes"), CASES)
def test_a_loss_and_its_gradients_are_those_of_pytorch(kind, said, sizes):
    torch = pytest.importorskip("torch")
    x, labels = given(kind, said, sizes)
    model = model_of(sizes)
    w, v = (
        torch.tensor(model.graph.initializers[n].const_value.numpy(), requires_grad=True)
        for n in "wv"
    )
    how = {k: torch.tensor(WEIGHTS) if k == "weight" else n for k, n in said.items()}
    second = torch.tensor(x) @ v if labels is None else torch.tensor(labels)
    loss = THEIRS[kind](torch, torch.tensor(x) @ w, second, **how)
    loss.backward()
    training = gt.grad(model, loss=loss_of(kind, said), wrt=["w"])
    result = gt.run(training, {"x": x} | ({} if labels is None else {"labels": labels}))

    assert result.loss == pytest.approx(loss.item(), rel=1e-9)
    np.testing.assert_allclose(result.gradients["w"], w.grad.numpy(), rtol=1e-7, atol=1e-10)
    if kind == "distill":
        assert v.grad is None


@pytest.mark.parametrize(("kind", "said", "sizes"), CASES)
def test_parts_of_a_batch_add_up_to_the_whole_or_are_refused(kind, said, sizes):
    x, labels = given(kind, said, sizes)
    data = {"x": x} | ({} if labels is None else {"labels": labels})
    trained = []
    for parts in (1, 3):
        how = {"loss": loss_of(kind, said), "wrt": ["w"], "optimizer": "sgd", "lr": 0.1, "steps": 2}
        with gt.Trainer(model_of(sizes), batch=N, micro_batches=parts, **how) as trainer:
            if kind in MIXED and parts > 1:
                with pytest.raises(UsageError, match="does not follow from those of its parts"):
                    trainer.fit(data)
                return
            trainer.fit(data)
            trained.append(trainer.weights()["w"])
    np.testing.assert_allclose(trained[0], trained[1], rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------- weights and masks of examples


def rows_of(torch, kind, y, t, said):
    """What each label gives, and its weight but for that of its example."""
    functional = torch.nn.functional
    if kind in ("ce", "nll", "focal"):
        y = y.movedim(-1, 1) if y.ndim > 2 else y
        weight = torch.tensor(WEIGHTS) if "weight" in said else None
        ignored = said.get("ignore", -100)
        counted = (t != ignored).double()
        w = counted if weight is None else counted * weight[torch.where(t == ignored, 0, t)]
        if kind == "focal":
            ce = functional.cross_entropy(y, t, reduction="none", ignore_index=ignored)
            share = 1.0 if weight is None else weight[torch.where(t == ignored, 0, t)]
            return share * (1 - torch.exp(-ce)) ** 2 * ce, counted
        of = functional.cross_entropy if kind == "ce" else functional.nll_loss
        how = {"label_smoothing": said["smoothing"]} if "smoothing" in said else {}
        rows = of(y, t, weight, reduction="none", ignore_index=ignored, **how)
        return rows / torch.where(w == 0, 1, w), w
    counted = (t != said["ignore"]).double() if "ignore" in said else torch.ones_like(t)
    of = {
        "mse": functional.mse_loss, "l1": functional.l1_loss, "huber": functional.huber_loss,
        "smooth-l1": functional.smooth_l1_loss,
        "bce-logits": functional.binary_cross_entropy_with_logits,
    }  # fmt: skip
    if kind == "focal-logits":
        p = torch.sigmoid(y)
        ce = functional.binary_cross_entropy_with_logits(y, t, reduction="none")
        apart, share = 1 - (p * t + (1 - p) * (1 - t)), 0.25 * t + 0.75 * (1 - t)
        return share * apart**2 * ce, counted
    return of[kind](y, t, reduction="none"), counted


WEIGHED = [
    ("ce", {}), ("ce", {"ignore": 2}), ("ce", {"weight": "cw"}), ("ce", {"smoothing": 0.2}),
    ("nll", {"ignore": 2, "weight": "cw"}), ("focal", {}), ("focal", {"ignore": 2}),
    ("focal", {"weight": "cw"}), ("focal-logits", {}), ("mse", {}), ("l1", {}), ("huber", {}),
    ("smooth-l1", {}), ("bce-logits", {}), ("bce-logits", {"ignore": -1}),
]  # fmt: skip


def weighed(kind, said, sizes, key):
    """The loss as it is written, and its data."""
    rng = np.random.default_rng(8)
    labels = rng.integers(0, C, sizes[:-1])
    if kind.endswith("-logits"):
        labels = rng.integers(0, 2, sizes).astype(float)
    elif kind in ("mse", "l1", "huber", "smooth-l1"):
        labels = rng.normal(size=sizes)
    if "ignore" in said:
        labels.flat[::4] = said["ignore"]
    shape = (N,) if key == "examples" else labels.shape
    counts = rng.uniform(0, 3, shape) if key == "examples" else rng.integers(0, 2, shape) * 1.0
    counts.flat[1] = 1
    settings = ",".join(f"{k}={v}" for k, v in {**said, key: "much"}.items())
    return f"{kind}:y@{settings}", {"x": rng.normal(size=sizes), "labels": labels, "much": counts}


@pytest.mark.extra
@pytest.mark.parametrize("key", ["examples", "mask"])
@pytest.mark.parametrize("sizes", [(N, C), (N, 3, C)], ids=len)
@pytest.mark.parametrize(("kind", "said"), WEIGHED)
def test_weights_of_examples_are_those_of_a_weighted_mean(kind, said, sizes, key):
    torch = pytest.importorskip("torch")
    loss, data = weighed(kind, said, sizes, key)
    model = model_of(sizes)
    w = torch.tensor(model.graph.initializers["w"].const_value.numpy(), requires_grad=True)
    rows, own = rows_of(
        torch, kind, torch.tensor(data["x"]) @ w, torch.tensor(data["labels"]), said
    )
    much = torch.tensor(data["much"]).reshape(
        data["much"].shape + (1,) * (rows.ndim - data["much"].ndim)
    )
    much = own * much
    expected = (rows * much).sum() / much.sum()
    expected.backward()
    result = gt.run(gt.grad(model, loss=loss, wrt=["w"]), data)

    assert result.loss == pytest.approx(expected.item(), rel=1e-9)
    np.testing.assert_allclose(result.gradients["w"], w.grad.numpy(), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("key", ["examples", "mask"])
@pytest.mark.parametrize(("kind", "said"), WEIGHED)
def test_weighed_parts_of_a_batch_add_up_to_the_whole(kind, said, key):
    loss, data = weighed(kind, said, (N, 3, C), key)
    trained = []
    for parts in (1, 3):
        how = {"loss": loss, "wrt": ["w"], "optimizer": "sgd", "lr": 0.1, "steps": 2}
        with gt.Trainer(model_of((N, 3, C)), batch=N, micro_batches=parts, **how) as trainer:
            trainer.fit(data)
            trained.append(trainer.weights()["w"])
    np.testing.assert_allclose(trained[0], trained[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ("ce:y@examples=a,mask=b", "examples cannot be combined with mask"),
        ("triplet:y@mask=a", "takes no mask"),
        ("ce:y@examples=x", r"input x double\[N, 4\], the loss takes sizes \[N\]"),
        ("mean:y@examples=a", "has no classes, and no examples"),
    ],
)
def test_weights_that_cannot_be_are_one_line(loss, said):
    with pytest.raises(UsageError, match=said):
        gt.grad(model_of((N, C)), loss=loss, wrt=["w"])


# ------------------------------------------------------------------------------ by their names

CODE = """
import gradtool as gt

def both(op, y, z):
    return op.ReduceMean((y - z) * (y - z), keepdims=0)

def likely(op, z, t):
    return op.ReduceMean((z - t) * (z - t), keepdims=0)

@gt.loss("two", labels={"classes": "classes:y", "boxes": "like:z", "more": "double[N]"})
def two(op, y, z, classes, boxes, more, *, beta=0.5):
    ce = op.SoftmaxCrossEntropyLoss(y, classes)
    return ce + op.ReduceMean((z - boxes) * (z - boxes), keepdims=0) * beta + op.ReduceMean(
        more, keepdims=0)

def odd(op, y, nothing, never):
    return y

@gt.loss("bad", labels={"t": "like:nobody"})
def bad(op, y, t):
    return y
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named_losses.py").write_text(CODE)


@pytest.mark.usefixtures("code")
def test_parameters_are_called_as_outputs_and_labels():
    rng = np.random.default_rng(0)
    x, t, n = rng.normal(size=(N, C)), rng.normal(size=(N, C)), rng.normal(size=N)
    classes = rng.integers(0, C, N)
    model = model_of((N, C))
    y, z = (x @ model.graph.initializers[name].const_value.numpy() for name in "wv")
    ce = -(y - np.log(np.exp(y).sum(1, keepdims=True)))[np.arange(N), classes].mean()
    cases = {
        "both": ({}, ((y - z) ** 2).mean()),
        "likely": ({"labels": t}, ((z - t) ** 2).mean()),
        "two": (
            {"classes": classes, "boxes": t, "more": n},
            ce + 0.5 * ((z - t) ** 2).mean() + n.mean(),
        ),
        "two@beta=2": (
            {"classes": classes, "boxes": t, "more": n},
            ce + 2 * ((z - t) ** 2).mean() + n.mean(),
        ),
    }
    for name, (feeds, expected) in cases.items():
        training = gt.grad(model_of((N, C)), loss=f"named_losses:{name}", wrt=["v"])
        assert set(training.labels) == set(feeds)
        assert gt.run(training, {"x": x, **feeds}).loss == pytest.approx(expected)


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ("named_losses:odd", r"takes nothing, never, .* outputs are y, z, inputs x.*\.py:\d+\)"),
        ("named_losses:bad", "'t' are declared as 'like:nobody'; write classes:OUTPUT"),
        ("contrastive:y", "takes 2 outputs, as in contrastive:a,b; outputs are y, z"),
        ("distill:y,q", "no such value"),
        ("focal:y@gamma=-1", "gamma needs a number above 0"),
        ("focal:y@beta=1", "no setting 'beta' .*gamma"),
        ("distill:y,z@gamma=1", "no setting 'gamma'"),
    ],
)  # fmt: skip
def test_what_is_called_as_nothing_is_one_line(loss, said):
    with pytest.raises((UsageError, UserCodeError), match=said):
        gt.grad(model_of((N, C)), loss=loss, wrt=["w"])
