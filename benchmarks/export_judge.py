"""The judge of an export: the loss that is chosen, gradients in two engines, steps of SGD."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

Arrays = Mapping[str, np.ndarray[Any, Any]]
RATE, STEPS, TOLERANCE = 0.05, 3, 2e-4


class Wrong(Exception):
    """A model that was not understood, or whose numbers are others."""


def loaded(data: bytes) -> ir.Model:
    """A model from the bytes of a file."""
    import gradtool as gt

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        return gt.load(path)


def check_choice(training: Any, kind: str, feeds: Arrays, loss: float) -> Arrays:
    """The gradients of a run, after the loss that was chosen and its value.

    Raises:
        Wrong: it is another loss, has another value, or nothing moves it.
    """
    import gradtool as gt
    from gradtool.losses.kinds import kinds

    if not training.loss_said.startswith(f"{kinds()[kind].said} (auto"):
        raise Wrong(f"chose {training.loss_said}, {kind} is right")
    result = gt.run(training, feeds)
    if abs(result.loss - loss) > TOLERANCE * (1 + abs(loss)):
        raise Wrong(f"loss {result.loss}, {loss} is right")
    theirs = gt.run(training, feeds, engine="ort")
    for name, gradient in result.gradients.items():
        require_close(theirs.gradients[name], gradient, f"onnxruntime's gradient of {name}")
    if not any(np.any(g) for g in result.gradients.values()):
        raise Wrong("all gradients are zero")
    return result.gradients


def require_close(found: Any, right: Any, what: str) -> None:
    """Compare two arrays. Raises Wrong if they are apart."""
    error = np.linalg.norm(np.asarray(found, np.float64) - np.asarray(right, np.float64))
    if not error <= TOLERANCE * (np.linalg.norm(right) + 1e-2):
        raise Wrong(f"{what} is off by {error:.1e}")


def stepped(model: ir.Model, feeds: Arrays, steps: int = STEPS) -> Arrays:
    """The parameters after some steps of SGD, by name."""
    import gradtool as gt

    step = gt.grad(model, optimizer="sgd")
    feeds = {**feeds, "lr": np.asarray(RATE, np.float32)}
    for _ in range(steps):
        result = gt.run(step, feeds)
        for name, following in step.updates.items():
            value = step.model.graph.initializers[name]
            value.const_value = ir.Tensor(result.outputs[following], name=name)
    return {n: step.model.graph.initializers[n].const_value.numpy() for n in step.updates}
