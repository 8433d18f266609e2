"""Whole models written as ONNX text: gradients against finite differences and onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from graphs import parse, stock

import gradtool as gt
from gradtool import shapes
from gradtool.exec import verify
from gradtool.exec.inputs import inputs_of


def check(text: str, weights: str, *, loss: str = "sum", wrt: list[str] | None = None, **feeds):
    """The gradients of a model by our kernels, which agree with both. Returns them by name.

    Written and read again the model computes the same.
    """
    feeds = {name: np.asarray(value) for name, value in feeds.items()}
    training = gt.grad(parse(text, weights), loss=loss, wrt=wrt)
    result = verified(training, feeds)
    again = gt.run(_reread(training), feeds)
    for value, mine in result.gradients.items():
        np.testing.assert_allclose(again.gradients[value], mine, rtol=1e-5, atol=1e-6)
    return dict(result.gradients)


def verified(training: gt.TrainingGraph, feeds: dict[str, np.ndarray]) -> gt.Result:
    """A run that agrees with finite differences and with stock onnxruntime."""
    result = gt.run(training, feeds)
    verify.finite_differences(training.model, feeds, result)
    known = {v.name for v in inputs_of(training.model)}
    theirs = stock(training.model, **{k: v for k, v in feeds.items() if k in known})
    for value, name in training.gradients.items():
        mine = result.gradients[value]
        np.testing.assert_allclose(mine, theirs[name], rtol=3e-4, atol=3e-5, err_msg=value)
    for name, mine in result.outputs.items():
        np.testing.assert_allclose(mine, theirs[name], rtol=3e-4, atol=3e-5, err_msg=name)
    return result


def _reread(training: gt.TrainingGraph) -> ir.Model:
    from gradtool.ops.composites.calls import inline

    model = training.model.clone()
    inline(model)
    model = ir.from_proto(ir.to_proto(model))
    shapes.infer(model)
    return model
