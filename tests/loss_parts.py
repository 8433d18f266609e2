"""Losses that count examples differently, in graphs of float64, and the same by PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from conftest import build

import gradtool as gt

FEATURES, CLASSES, EXAMPLES = 6, 5, 24
CLASS_WEIGHTS = np.array([1, 5, 0.25, 2, 0.5])


@dataclass(frozen=True)
class Case:
    """A loss: its graph behind `y = Tanh (x · w)`, or what `--loss` appends to that.

    `mixes` examples, so that parts are refused; `theirs(torch, y, data, w)` is the loss by PyTorch.
    """

    text: str
    theirs: Callable[..., Any]
    loss: tuple[str, ...] = ("loss",)
    mixes: bool = False
    labels: str = "labels"


def _ce(torch, y, data, **how):
    return torch.nn.functional.cross_entropy(y, data["labels"], **how)


def _rows(_, y, data):
    return ((y - data["target"]) ** 2).mean(1)


def _masked(torch, y, data, _=None):
    return (_rows(torch, y, data) * data["mask"]).sum() / data["mask"].sum()


def _weights(torch):
    return torch.tensor(CLASS_WEIGHTS)


_ROWS = """e = Sub (y, target) q = Mul (e, e)
    l = ReduceMean <keepdims = 0> (q, one)
"""
_N = (
    _ROWS
    + " lm = Mul (l, mask) n = ReduceSum <keepdims = 0> (lm) d = ReduceSum <keepdims = 0> (mask)"
)
_BINARY = "p = Sigmoid (y) b = Sub (p, target) b2 = Mul (b, b)"


def _focal(torch, y, data, *, by_positives):
    ce = torch.nn.functional.cross_entropy(y, data["label"], reduction="none")
    rows = (1 - torch.exp(-ce)) ** 2 * ce
    return (rows * data["mask"]).sum() / data["mask"].sum() if by_positives else rows.mean()


_FOCAL = """ce = SoftmaxCrossEntropyLoss <reduction = "none"> (y, label) minus = Neg (ce)
    pt = Exp (minus) rest = Sub (unit, pt) sq = Mul (rest, rest) f = Mul (sq, ce)
"""


def _dice(torch, y, data, axes):
    p, t = torch.sigmoid(y), data["binary"]
    return (1 - (2 * (p * t).sum(axes) + 1) / (p.sum(axes) + t.sum(axes) + 1)).mean()


_DICE = """p = Sigmoid (y) pt = Mul (p, binary) i = ReduceSum <keepdims = 0> (pt{0})
    sp = ReduceSum <keepdims = 0> (p{0}) st = ReduceSum <keepdims = 0> (binary{0}) i2 = Add (i, i)
    above = Add (i2, unit) u = Add (sp, st) below = Add (u, unit) r = Div (above, below)
    dr = Sub (unit, r) loss = ReduceMean <keepdims = 0> (dr)"""


def _nce(torch, y, data, _=None):
    return torch.nn.functional.cross_entropy(y @ data["target"].T, torch.arange(len(y)))


CASES = {
    "ignored, in the file": Case(
        "loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (y, labels)",
        lambda t, y, d, w: _ce(t, y, d)),
    "ignored": Case("", lambda t, y, d, w: _ce(t, y, d), ("ce:y",)),
    "ignored class": Case("", lambda t, y, d, w: t.nn.functional.cross_entropy(
        y, d["label"], ignore_index=2), ("ce:y@ignore=2",), labels="label"),
    "class weights, in the file": Case(
        "loss = SoftmaxCrossEntropyLoss (y, label, cw)",
        lambda t, y, d, w: t.nn.functional.cross_entropy(y, d["label"], _weights(t))),
    "class weights": Case("", lambda t, y, d, w: _ce(t, y, d, weight=_weights(t)),
                          ("ce:y@weight=cw",)),
    "smoothing": Case("", lambda t, y, d, w: _ce(t, y, d, weight=_weights(t), label_smoothing=0.1),
                      ("ce:y@weight=cw,smoothing=0.1",)),
    "log-likelihood": Case(
        "s = LogSoftmax (y) loss = NegativeLogLikelihoodLoss <ignore_index = -100> (s, labels, cw)",
        lambda t, y, d, w: _ce(t, y, d, weight=_weights(t))),
    "masked mean": Case(f"{_N} loss = Div (n, d)", _masked),
    "masked mean, safe": Case(f"{_N} m = Max (d, unit) loss = Div (n, m)", _masked),
    "masked mean of means": Case(
        f"{_ROWS} lm = Mul (l, mask) n = ReduceMean <keepdims = 0> (lm)"
        " d = ReduceMean <keepdims = 0> (mask) loss = Div (n, d)", _masked),
    "mean by shape": Case(
        f"{_ROWS} n = ReduceSum <keepdims = 0> (l) s = Shape <start = 0, end = 1> (y)"
        " c = Squeeze (s) f = Cast <to = 11> (c) loss = Div (n, f)",
        lambda t, y, d, w: _rows(t, y, d).mean()),
    "masked and a norm": Case(
        f"{_N} a = Div (n, d) w2 = Mul (w, w) reg = ReduceSum <keepdims = 0> (w2)"
        " tenth = Mul (reg, small) loss = Add (a, tenth)",
        lambda t, y, d, w: _masked(t, y, d) + 0.1 * (w * w).sum()),
    "sum and a norm": Case(
        f"{_ROWS} n = ReduceSum <keepdims = 0> (l) w2 = Mul (w, w)"
        " reg = ReduceSum <keepdims = 0> (w2) loss = Sub (n, reg)",
        lambda t, y, d, w: _rows(t, y, d).sum() - (w * w).sum()),
    "two losses": Case(
        "z = Mul (y, small)",
        lambda t, y, d, w: 2 * _ce(t, y, d) + ((0.1 * y - d["labels_z"]) ** 2).mean(),
        ("2*ce:y", "mse:z")),
    "mean": Case(f"{_ROWS} loss = ReduceMean <keepdims = 0> (l)",
                 lambda t, y, d, w: _rows(t, y, d).mean()),
    "sum": Case(f"{_ROWS} loss = ReduceSum <keepdims = 0> (l)",
                lambda t, y, d, w: _rows(t, y, d).sum()),
    "focal": Case(f"{_FOCAL} loss = ReduceMean <keepdims = 0> (f)",
                  lambda t, y, d, w: _focal(t, y, d, by_positives=False)),
    "focal by positives": Case(
        f"{_FOCAL} fm = Mul (f, mask) n = ReduceSum <keepdims = 0> (fm)"
        " d = ReduceSum <keepdims = 0> (mask) loss = Div (n, d)",
        lambda t, y, d, w: _focal(t, y, d, by_positives=True)),
    "balanced": Case(
        f"{_ROWS} d = ReduceMean <keepdims = 0> (mask) o = Sub (unit, d) a = Mul (mask, o)"
        " m = Sub (unit, mask) b = Mul (m, d) v = Add (a, b) lv = Mul (l, v)"
        " loss = ReduceMean <keepdims = 0> (lv)",
        lambda t, y, d, w: (_rows(t, y, d) * t.where(
            d["mask"] > 0, 1 - d["mask"].mean(), d["mask"].mean())).mean()),
    "by column": Case(
        "e = Sub (y, target) q = Mul (e, e) qt = Mul (q, binary) n = ReduceSum <keepdims = 0> (qt, "
        "zero) d = ReduceSum <keepdims = 0> (binary, zero) r = Div (n, d)"
        " loss = ReduceMean <keepdims = 0> (r)",
        lambda t, y, d, w: (((y - d["target"]) ** 2 * d["binary"]).sum(0)
                            / d["binary"].sum(0)).mean()),
    "dice of each": Case(_DICE.format(", one"), lambda t, y, d, w: _dice(t, y, d, 1)),
    "picked by number": Case(
        "s = Shape <start = 0, end = 1> (y) c = Squeeze (s) i = Range (first, c, next)"
        " i1 = Unsqueeze (i, one) j1 = Unsqueeze (label, one) ij = Concat <axis = 1> (i1, j1)"
        " g = GatherND (y, ij) n = Neg (g) loss = ReduceMean <keepdims = 0> (n)",
        lambda t, y, d, w: -y[t.arange(len(y)), d["label"]].mean()),
    "dice over the batch": Case(_DICE.format(""), lambda t, y, d, w: _dice(t, y, d, (0, 1)),
                                mixes=True),
    "InfoNCE": Case(
        "tt = Transpose (target) s = MatMul (y, tt) n = Shape <start = 0, end = 1> (y)"
        " c = Squeeze (n) i = Range (first, c, next)"
        " loss = SoftmaxCrossEntropyLoss (s, i)", _nce, mixes=True),
    "root of a mean": Case(
        f"{_ROWS} m = ReduceMean <keepdims = 0> (l) loss = Sqrt (m)",
        lambda t, y, d, w: _rows(t, y, d).mean().sqrt(), mixes=True),
    "spread of the batch": Case(
        "m = ReduceMean (y, zero) e = Sub (y, m) q = Mul (e, e)"
        " loss = ReduceMean <keepdims = 0> (q)",
        lambda t, y, d, w: ((y - y.mean(0)) ** 2).mean(), mixes=True),
    "softmax over the batch": Case(
        f"{_ROWS} s = Softmax <axis = 0> (l) sl = Mul (s, l) loss = ReduceSum <keepdims = 0> (sl)",
        lambda t, y, d, w: (t.softmax(_rows(t, y, d), 0) * _rows(t, y, d)).sum(), mixes=True),
    "worst of the batch": Case(
        f"{_ROWS} loss = ReduceMax <keepdims = 0> (l)",
        lambda t, y, d, w: _rows(t, y, d).max(), mixes=True),
    "weighed by the model": Case(
        f"{_ROWS} g = ReduceMean <keepdims = 0> (y, one) s = Sigmoid (g) lg = Mul (l, s)"
        " n = ReduceSum <keepdims = 0> (lg) d = ReduceSum <keepdims = 0> (s) loss = Div (n, d)",
        lambda t, y, d, w: (_rows(t, y, d) * t.sigmoid(y.mean(1))).sum()
        / t.sigmoid(y.mean(1)).sum(), mixes=True),
    "pairs": Case(
        "r = Concat <axis = 0> (y, y) s = Slice (r, one, end, zero)"
        " a = Mul (s, s) loss = ReduceMean <keepdims = 0> (a)",
        lambda t, y, d, w: (t.cat([y, y])[1:25] ** 2).mean(), mixes=True),
}  # fmt: skip
INPUTS = {"target": "double[{0}, 5]", "binary": "double[{0}, 5]", "mask": "double[{0}]",
          "label": "int64[{0}]", "labels": "int64[{0}]"}  # fmt: skip
NUMBERS = {
    "one": np.array([1]), "zero": np.array([0]), "end": np.array([25]), "unit": np.float64(1),
    "small": np.float64(0.1), "first": np.int64(0), "next": np.int64(1), "cw": CLASS_WEIGHTS,
}  # fmt: skip


def model(case, batch="batch", *, deep=False):
    """The network and its loss; `deep` has layers for stages to lie in."""
    said = " ".join(case.loss)
    used = {n: t.format(batch) for n, t in INPUTS.items() if _reads(case.text, n)}
    numbers = {n: a for n, a in NUMBERS.items() if _reads(case.text, n) or f"={n}" in said}
    rng = np.random.default_rng(1)
    arrays = {"w": rng.normal(size=(FEATURES, CLASSES))}
    before = "xw = MatMul (x, w) "
    if deep:
        arrays["w0"] = rng.normal(size=(FEATURES, FEATURES)) / 2
        before = "xv = MatMul (x, w0) xt = Tanh (xv) xw = MatMul (xt, w) "
    given = ", ".join([f"double[{batch}, {FEATURES}] x", *(f"{t} {n}" for n, t in used.items())])
    outputs = [f"double[{batch}, {CLASSES}] y"]
    if case.loss == ("loss",):
        outputs.insert(0, "double loss")
    if "mse:z" in case.loss:
        outputs.append(f"double[{batch}, {CLASSES}] z")
    text = f"net ({given}) => ({', '.join(outputs)}) {{ {before} y = Tanh (xw) {case.text} }}"
    return gt.load(build(text, **arrays, **numbers))


def _reads(text, name):
    return any(name == word.strip("(),") for word in text.split())


def data(rng, count=EXAMPLES):
    """Examples of which the first two are like any; few of the others count."""
    labels = rng.integers(0, CLASSES, count)
    mask = (rng.random(count) < 0.3).astype(np.float64)
    mask[:2], mask[-1] = 1, 1
    counted = labels.copy()
    counted[mask == 0] = -100
    binary = (rng.random((count, CLASSES)) < 0.4).astype(np.float64)
    binary[:2] = 1
    made = {
        "x": rng.normal(size=(count, FEATURES)), "target": rng.normal(size=(count, CLASSES)),
        "binary": binary, "mask": mask, "label": labels, "labels": counted,
        "labels_y": counted, "labels_z": rng.normal(size=(count, CLASSES)),
    }  # fmt: skip
    if count > 12:
        made["labels"][12:16] = made["labels_y"][12:16] = -100  # a part without any label
        made["mask"][12:16] = 0
    return made


def held(case, given, net):
    """The arrays that a model and its loss take."""
    names = {v.name for v in gt.grad(net, loss=list(case.loss)).model.graph.inputs}
    given = given | {"labels": given[case.labels]}
    return {name: array for name, array in given.items() if name in names}


def by_torch(torch, case, given, weights):
    """The loss of all examples, and its gradients by the weights."""
    held = {n: torch.tensor(a, requires_grad=True) for n, a in weights.items()}
    y = torch.tensor(given["x"])
    for name in ("w0", "w"):
        if name in held:
            y = torch.tanh(y @ held[name])
    of = {n: torch.tensor(a) for n, a in given.items()}
    loss = case.theirs(torch, y, of, held["w"])
    loss.backward()
    return loss.item(), {n: v.grad.numpy() for n, v in held.items()}
