"""Traits of the operators of the conv family."""

from gradtool.ops.traits import traits

traits("ai.gradtool::ConvGradInput ai.gradtool::ConvGradWeight", recompute="product")
traits("Conv ConvTranspose", recompute="product", residuals="W, X")
traits("DeformConv", recompute="product", residuals="mask, offset, W, X")
