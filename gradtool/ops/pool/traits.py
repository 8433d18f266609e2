"""Traits of the operators of the pool family."""

from gradtool.ops.traits import traits

traits("AveragePool GlobalAveragePool", residuals="")
traits("GlobalLpPool LpPool", residuals="X, Y")
traits("GlobalMaxPool", residuals="X")
traits("MaxPool", residuals="Indices")
traits("MaxUnpool", residuals="I")
