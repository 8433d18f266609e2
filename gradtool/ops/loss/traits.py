"""Traits of the operators of the loss family."""

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
    residuals="bias, groups, labels, low, output 1, scales, up, w, weights, x, zeros",
)
traits("ai.gradtool::LinearCrossEntropyGrad", recompute="product")
