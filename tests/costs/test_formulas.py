"""Counts worked out by hand, operator by operator."""

from __future__ import annotations

import numpy as np
import pytest
from costs.counting import count

from gradtool.graph.specs import Spec

X = (3, 4)  # 12 elements
GRID = {"mode": "linear", "padding": "zeros", "align_corners": 0}
CODED = {"bits": 4, "block_size": 16, "size": 20, "transB": 1}
RATE, STEP = np.zeros(()), np.zeros((), np.int64)

# Operator, operands, results, options, operations.
FORMULAS = [
    ("Add", [X, (4,)], [X], {}, 12),
    ("Sum", [X, X, X], [X], {}, 24),
    ("Mean", [X, X, X], [X], {}, 36),
    ("Clip", [X, ()], [X], {}, 12),
    ("Clip", [X, (), ()], [X], {}, 24),
    ("Where", [X, X, X], [X], {}, 0),
    ("Cast", [X], [X], {"to": 1}, 0),
    ("Relu", [X], [X], {}, 12),
    ("Sigmoid", [X], [X], {}, 4 * 12),
    ("Gelu", [X], [X], {}, 5 * 12),
    ("Gelu", [X], [X], {"approximate": "tanh"}, 9 * 12),
    ("Softmax", [X], [X], {}, 5 * 12),
    ("Dropout", [X], [X], {}, 0),
    ("Dropout", [X, RATE, np.ones((), bool)], [X], {}, 3 * 12),
    ("Dropout", [X, RATE, ()], [X], {}, None),  # whether it trains is not known
    ("ai.gradtool::ReluGrad", [X, X], [X], {}, 12),
    ("ai.gradtool::PowGrad", [X, (), X], [X], {}, 3 * 12 + 2),
    ("ai.gradtool::PowExponentGrad", [X, (4,), X, X], [X], {}, 2 * 12 + 2 * 12 + 4),
    ("ai.gradtool::MaxGrad", [X, (4,), X], [X], {}, 3 * 12 + 12),
    ("ai.gradtool::ClipGrad", [X, (), None, X], [X], {}, 12),
    ("ai.gradtool::ClipGrad", [X, (), (), X], [X], {}, 24),
    ("ai.gradtool::EluGrad", [X, X], [X], {"alpha": 1.0, "beta": 1.0, "gamma": 1.0}, 3 * 12),
    ("ai.gradtool::EluGrad", [X, X], [X], {"alpha": 1.0, "beta": 0.5, "gamma": 1.0}, 4 * 12),
    ("ai.gradtool::GeluGrad", [X, X], [X], {"approximate": "none"}, 11 * 12),
    ("ai.gradtool::MaskGrad", [Spec(X, np.dtype(bool)), X], [X], {}, 0),
    ("ai.gradtool::BinaryCrossEntropy", [X, X], [X], {}, 10 * 12),
    ("ReduceSum", [X], [(3,)], {}, 12),
    ("ReduceMean", [X], [(3,)], {}, 12 + 3),
    ("ReduceLogSumExp", [X], [(3,)], {}, 4 * 12 + 2 * 3),
    ("ai.gradtool::ReduceExtremeGrad", [X, (3, 1), (3, 1)], [X], {"axes": (1,)}, 24 + 3),
    ("Transpose", [X], [(4, 3)], {}, 0),
    ("ai.gradtool::PadGrad", [(5, 4), None, None], [X], {"mode": "reflect"}, 8),
    ("ai.gradtool::PadGrad", [(5, 4), None, None], [X], {"mode": "constant"}, 0),
    ("Resize", [(1, 1, 2, 2)], [(1, 1, 4, 4)], {"mode": "nearest"}, 0),
    ("ai.gradtool::ResizeGrad", [(1, 1, 4, 4), None], [(1, 1, 2, 2)], {"mode": "nearest"}, 16),
    ("Gather", [X, (5,)], [(5, 4)], {}, 0),
    ("ai.gradtool::GatherGrad", [(5, 4), (5,), None], [X], {}, 20),
    ("ScatterND", [X, (2, 1), (2, 4)], [X], {}, 0),
    ("ScatterND", [X, (2, 1), (2, 4)], [X], {"reduction": "add"}, 8),
    ("ArgMax", [X], [(3,)], {}, 12),
    ("TopK", [(3, 8), np.asarray([2])], [(3, 2), (3, 2)], {}, 24 * 3),
    # max, -, exp and Σ of every score; log, - and the sums of losses and of weights by sample.
    ("SoftmaxCrossEntropyLoss", [X, (3,)], [()], {}, 4 * 12 + 2 * 3 + 2 * 3 + 1),
    ("SoftmaxCrossEntropyLoss", [X, (3,)], [(), X], {}, 5 * 12 + 2 * 3 + 2 * 3 + 1),
    ("NegativeLogLikelihoodLoss", [X, (3,), (4,)], [()], {"reduction": "sum"}, 3 + 3 + 3),
    # Of 4 × 7 scores each 2 · 20 and 4, of a row 5, of a number that is decoded 2.
    ("ai.gradtool::LinearCrossEntropy",
     [(4, 20), (4,), (7, 2, 8), None, None, None, None, (7, 2)], [(4,), (4,)], CODED,
     28 * 44 + 20 + 2 * 7 * 32),
    ("ai.gradtool::LinearCrossEntropy",
     [(4, 20), (4,), (7, 2, 8), None, None, None, None, (7, 2), None, (20,)], [(4,)], CODED,
     28 * 44 + 20 + 2 * 7 * 20),
    # 1 + 2 divisions and 2 · (1 + 4) for the multiply-adds of 3 × 3, then the diagonal.
    ("Det", [(5, 3, 3)], [(5,)], {}, 5 * (3 + 10 + 3)),
    ("AffineGrid", [(2, 2, 3), None], [(2, 4, 5, 2)], {}, 2 * 80 * 3),
    # 6 positions: weights (3 + 4) by axis and 4 products; 4 multiply-adds by channel.
    ("ai.gradtool::Sample", [(1, 5, 4, 4), (1, 6, 2)], [(1, 5, 6)], GRID, 6 * 18 + 6 * 5 * 8),
    ("RoiAlign", [(1, 2, 8, 9), (3, 4), None], [(3, 2, 2, 2)], {},
     3 * 2 * (2 * 2 * 8 * 9 + 2 * 2 * 9 * 2)),
    ("RoiAlign", [(1, 2, 8, 9), (3, 4), None], [(3, 2, 2, 2)], {"mode": "max"}, None),
    ("RandomUniformLike", [X], [X], {}, 36),
    ("QuantizeLinear", [X, (), np.zeros((), np.uint8)], ["uint8"], {}, 5 * 12),
    ("DequantizeLinear", [X, ()], [X], {}, 12),
    ("ai.onnx.ml::LinearRegressor", [X], [(3, 2)], {"targets": 2, "intercepts": [1.0, 2.0]},
     2 * 12 * 2 + 6),
    ("ai.onnx.preview.training::Adam", [RATE, STEP, X, X, X, X], [X, X, X], {}, 12 * 12),
    ("ai.onnx.preview.training::Momentum", [RATE, STEP, X, X, X], [X, X],
     {"mode": "nesterov", "norm_coefficient": 0.1}, 9 * 12),
]  # fmt: skip


def _id(value) -> str | None:
    return value if isinstance(value, str) else None


@pytest.mark.parametrize(("op", "inputs", "out", "options", "expected"), FORMULAS, ids=_id)
def test_counts_are_those_worked_out_by_hand(op, inputs, out, options, expected):
    results = [_bytes(X) if o == "uint8" else o for o in out]

    assert count(op, *inputs, out=results, **options) == expected


def _bytes(shape):
    return Spec(shape, np.dtype(np.uint8))
