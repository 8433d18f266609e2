"""The gradient of a drawn model with control flow: valid, run by onnxruntime, right in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

import gradtool as gt
from gradtool.exec import verify
from gradtool.passes._loops import pairs
from gradtool.passes.turns_again import take_again
from gradtool.workloads.recompute import prepared

TOLERANCE = 1e-4


def exclusion(proto: onnx.ModelProto) -> str | None:
    """Why the forward model itself is none to try, if it is not."""
    try:
        onnx.checker.check_model(proto, full_check=True)
    except onnx.shape_inference.InferenceError:
        return "ONNX's checker cannot infer a type that nobody declares"
    try:
        opened(proto.SerializeToString())
    except Exception:  # noqa: BLE001 - its own classes share no other base
        return "onnxruntime does not load the forward model"
    return None


def check(proto: onnx.ModelProto, folder: Path, feeds: dict[str, np.ndarray]) -> None:
    """Write the gradient and try it on arrays. Raises what is wrong."""
    source, target = folder / "model.onnx", folder / "model.grad.onnx"
    onnx.save(proto, source)
    training = gt.grad(gt.load(source), input_grad=["*"])
    gt.save(training, target, force=True)
    onnx.checker.check_model(target, full_check=True)
    session = opened(target.read_bytes())
    names = [output.name for output in session.get_outputs()]
    stock = dict(zip(names, session.run(names, feeds), strict=True))
    again = gt.load(target)
    result = gt.run(again, feeds)
    for value, gradient in result.gradients.items():
        np.testing.assert_allclose(
            stock[f"{value}_grad"], gradient, rtol=TOLERANCE, atol=TOLERANCE * 1e-2
        )
    verify.finite_differences(again, feeds, result)
    for length in (1, 2):
        _check_turns(training.model, feeds, length)


def _check_turns(model, feeds: dict[str, np.ndarray], length: int) -> None:
    """Take turns of all loops again, so many at a time. Raises if any bit is another."""
    changed = prepared(model)
    turns = {pair.name: length for pair in pairs(changed) if length <= pair.most}
    take_again(changed, turns)
    kept, found = gt.run(model, feeds).gradients, gt.run(changed, feeds).gradients
    for value, gradient in kept.items() if turns else ():
        np.testing.assert_array_equal(found[value], gradient)


def opened(model: bytes):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
