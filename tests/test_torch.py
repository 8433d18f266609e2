"""PyTorch as an oracle: first and second gradients of the samples and of a zoo of exports."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from shared import SMALL

import gradtool as gt
from gradtool.passes.widen import widen

ROOT = Path(__file__).parents[1]
MODELS = sorted(p.parent.name for p in SMALL.glob("*/grads.npz"))
SAMPLES = ("cnn", "transformer", "lstm")
DOUBLE = ("pinn", "gan_wgan_gp", "activations")
sys.path.append(str(ROOT / "benchmarks"))


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as data:
        return dict(data)


def relative_error(found, expected) -> tuple[float, str]:
    """The worst tensor: relative L2, with a floor for tensors that are all but zero."""
    whole = np.sqrt(sum(float(np.vdot(g, g)) for g in expected.values())) or 1.0
    errors = {
        n: float(np.linalg.norm(found[n] - g) / (np.linalg.norm(g) + 1e-4 * whole))
        for n, g in expected.items()
    }
    worst = max(errors, key=lambda n: np.nan_to_num(errors[n], nan=np.inf))
    return errors[worst], worst


@pytest.mark.extra
@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_have_the_gradients_that_pytorch_finds(name):
    torch = pytest.importorskip("torch")
    from torch_eager import Eager

    path = ROOT / "samples" / f"{name}.onnx"
    inputs = arrays(path.with_suffix(".npz"))
    model = widen(gt.load(path, batch=inputs["labels"].shape[int(name == "lstm")]))
    training = gt.grad(model, loss="ce:logits")
    wide = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in inputs.items()}
    found = gt.run(training, wide)
    wrt = list(training.gradients)
    eager = Eager(onnx.load(path), torch.float64)
    tensors = eager.tensors(inputs)
    labels = tensors.pop("labels")
    for weight in wrt:
        eager.values[weight].requires_grad_(True)
    logits = eager(tensors)["logits"]
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.flatten())
    loss.backward()
    expected = {n: eager.values[n].grad.numpy() for n in wrt}
    error, worst = relative_error(found.gradients, expected)
    assert found.loss == pytest.approx(float(loss.detach()), rel=1e-12)
    assert error < 1e-10, f"{worst}: {error:.1e}"


@pytest.mark.sample(1, 2)
@pytest.mark.shared
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_zoo_has_the_gradients_that_pytorch_finds(name):
    folder = SMALL / name
    expected = arrays(folder / "grads.npz")
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    rounding = (meta.get("grad_f32_vs_f64") or {}).get("worst_tensor_maxerr_over_maxabs") or 0.0
    model = gt.load(folder / "model.onnx")
    training = gt.grad(model, wrt=list(expected))
    found = gt.run(training, arrays(folder / "inputs.npz"))
    error, worst = relative_error(found.gradients, expected)
    assert found.loss == pytest.approx(np.load(folder / "loss.npy").item(), rel=1e-3, abs=1e-5)
    assert error <= max(3e-4, 30 * rounding), f"{worst}: {error:.1e}"


@pytest.mark.extra
@pytest.mark.shared
@pytest.mark.parametrize("name", DOUBLE)
def test_second_order_is_what_double_backward_finds(name):
    pytest.importorskip("torch")
    from second_order import second_order

    row = second_order(SMALL / name)
    assert row["float64"] < 1e-10
    assert row["float32"] < 1e-4
