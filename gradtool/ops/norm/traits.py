"""Traits of the operators of the norm family."""

from gradtool.ops.traits import traits

traits("ai.gradtool::BatchNormalizationTraining", residuals="output 3, output 4, scale, x")
traits("BatchNormalization", residuals="input_mean, input_var, scale, X")
traits("GroupNormalization", residuals="scale, X", onnxruntime="body")
traits("InstanceNormalization", residuals="input, scale")
traits("LayerNormalization", residuals="InvStdDev, Mean, Scale, X")
traits("LpNormalization", residuals="input")
traits("LRN MeanVarianceNormalization", residuals="X")
traits("RMSNormalization", residuals="scale, X")
