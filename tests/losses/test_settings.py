"""Losses over classes with ignored labels, weights, smoothing, shifts and soft labels."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from graphs import parse, stock

import gradtool as gt

C = 5


def identity(shape, inputs=""):
    return parse(f"g (float[{shape}] x{inputs}) => (y) {{ y = Identity (x) }}")


def drawn(seed):
    """A loss as it is written, scores, labels, and what PyTorch is told of them."""
    rng = np.random.default_rng(seed)
    sizes, axis = [((4, C), 1), ((3, 4, C), 2), ((3, C, 4), 1), ((2, C, 3, 4), 1)][seed % 4]
    scores = rng.normal(size=sizes).astype(np.float32)
    rest = [n for i, n in enumerate(sizes) if i != axis]
    said, theirs, soft = [f"axis={axis}"], {}, rng.random() < 0.2
    if soft:
        said.append("soft=1")
        labels = rng.dirichlet(np.ones(C), rest)
        labels = np.moveaxis(labels, -1, axis).astype(np.float32)
    else:
        dtype = rng.choice([np.int32, np.int64])
        labels = rng.integers(0, C, rest).astype(dtype)
        ignored = int(rng.choice([-100, -1, 0, 2, 255]))
        labels[rng.random(rest) < 0.3] = ignored
        labels.flat[0] = 1
        theirs["ignore_index"] = ignored
        if ignored >= 0 or rng.random() < 0.5:
            said.append(f"ignore={ignored}")
    if rng.random() < 0.6:
        theirs["label_smoothing"] = 0.2
        said.append("smoothing=0.2")
    if rng.random() < 0.6:
        theirs["weight"] = np.array([1, 5, 0.25, 2, 3], np.float32)
        said.append("weight=cw")
    if len(sizes) > 2 and rng.random() < 0.5:
        theirs["shift"] = 1
        said.append("shift=1")
    return f"ce:y@{','.join(said)}", scores, labels, axis, theirs


def by_torch(scores, labels, axis, theirs):
    torch = pytest.importorskip("torch")
    x = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    y, t = x.movedim(axis, -1), torch.tensor(labels)
    soft = t.is_floating_point()
    t = t.double().movedim(axis, -1) if soft else t.long()
    if theirs.pop("shift", 0):
        place = y.ndim - 2
        y, t = y.narrow(place, 0, y.shape[place] - 1), t.narrow(place, 1, t.shape[place] - 1)
    if "weight" in theirs:
        theirs["weight"] = torch.tensor(theirs["weight"], dtype=torch.float64)
    t = t.reshape(-1, C) if soft else t.reshape(-1)
    loss = torch.nn.functional.cross_entropy(y.reshape(-1, C), t, **theirs)
    loss.backward()
    return loss.item(), x.grad.numpy()


@pytest.mark.sample(3)
@pytest.mark.extra
@pytest.mark.parametrize("seed", range(24))
def test_drawn_settings_are_those_of_pytorch_here_and_in_stock_onnxruntime(seed):
    loss, scores, labels, axis, theirs = drawn(seed)
    shape = ", ".join("N" if i == 0 else str(n) for i, n in enumerate(scores.shape))
    kind = {"i4": "int32", "i8": "int64", "f4": "float"}[labels.dtype.str[1:]]
    rest = ", ".join("N" if i == 0 else str(n) for i, n in enumerate(labels.shape))
    model = identity(shape, f", {kind}[{rest}] labels")
    if "weight=cw" in loss:
        tensor = ir.Tensor(theirs["weight"], name="cw")
        model.graph.register_initializer(
            ir.Value(name="cw", shape=ir.Shape([C]), type=ir.TensorType(ir.DataType.FLOAT),
                     const_value=tensor)
        )  # fmt: skip
    training = gt.grad(model, loss=loss, wrt=["x"])
    result = gt.run(training, {"x": scores, "labels": labels})
    there = stock(training.model, x=scores, labels=labels)
    expected, gradient = by_torch(scores, labels, axis, dict(theirs))

    assert result.loss == pytest.approx(expected, rel=1e-5)
    assert there["loss"] == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(result.gradients["x"], gradient, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(there["x_grad"], gradient, rtol=1e-4, atol=1e-6)
