"""Reductions: so many operations per element read, and per result."""

from gradtool.ops.costs import counts, each
from gradtool.ops.shared.element_counts import size

each({
    "ReduceSum": (1, 0),
    "ReduceMax": (1, 0),
    "ReduceMin": (1, 0),
    "ReduceProd": (1, 0),
    "ReduceMean": (1, 1),
    "ReduceL1": (2, 0),
    "ReduceL2": (2, 1),
    "ReduceSumSquare": (2, 0),
    "ReduceLogSum": (1, 1),
    "ReduceLogSumExp": (4, 2),  # max, -, exp, Σ; log, +
    "CumProd": 1,
    "CumSum": 1,
    "ai.gradtool::CumProdGrad": 4,  # a sum of products from the end, times a product from the front
    "ai.gradtool::ReduceProdGrad": 4,  # products before and after, times each other, times dy
})  # fmt: skip

# `dx = dy / k` at the k elements that equal y.
counts({"ai.gradtool::ReduceExtremeGrad": lambda x, y: 2 * size(x) + size(y)})
