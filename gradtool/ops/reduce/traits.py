"""Traits of the operators of the reduce family."""

from gradtool.ops.traits import traits

traits("CumProd", residuals="axis, x")
traits("CumSum", residuals="axis")
traits("ReduceL1 ReduceProd ReduceSumSquare", residuals="data")
traits("ReduceL2 ReduceLogSumExp ReduceMax ReduceMin", residuals="data, reduced")
traits("ReduceLogSum", residuals="reduced")
traits("ReduceMean ReduceSum", residuals="")
