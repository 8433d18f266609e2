"""Traits of the operators of the loss family."""

from __future__ import annotations

from gradtool.ops.traits import traits

traits("ai.gradtool::BinaryCrossEntropy", recompute="never", residuals="p, t")
traits(
    "NegativeLogLikelihoodLoss",
    recompute="never",
    residuals="input, loss, target, weight",
    onnxruntime="body",
)
traits(
    "SoftmaxCrossEntropyLoss",
    recompute="never",
    residuals="labels, output, scores, weights",
    onnxruntime="body",
)
traits(
    "ai.gradtool::LinearCrossEntropy",
    recompute="product",
    residuals="bias, labels, low, matrix, output 1, up, w, weights, x",
)
traits("ai.gradtool::LinearCrossEntropyGrad", recompute="product")
