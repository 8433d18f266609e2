"""Traits of the operators of the activation family."""

from gradtool.ops.traits import traits

traits("Celu HardSigmoid Relu Sigmoid", residuals="Y")
traits("Dropout", residuals="mask, ratio")
traits("Elu LeakyRelu Selu", residuals="X, Y")
traits("Gelu Softplus ThresholdedRelu", residuals="X")
traits("HardSwish Mish Swish", residuals="X", onnxruntime="body")
traits("LogSoftmax Softmax", residuals="output")
traits("PRelu", residuals="slope, X")
traits("Shrink Softsign", residuals="input")
traits("SwiGLU", onnxruntime="body")
