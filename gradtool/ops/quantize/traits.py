"""Traits of the operators of the quantize family."""

from gradtool.ops.traits import traits

traits("ConvInteger MatMulInteger QLinearConv QLinearMatMul", recompute="product")
traits("DequantizeLinear", residuals="x, x_scale, x_zero_point")
traits("ai.gradtool::QuantizedMatMul", recompute="product", residuals="codes, groups, scale, zero")
