"""Traits of the operators of the linear family."""

from gradtool.ops.traits import traits

traits("ai.gradtool::SummedMatMul", recompute="product")
traits("Einsum", recompute="product", residuals="Inputs")
traits("Gemm MatMul", recompute="product", residuals="A, B")
