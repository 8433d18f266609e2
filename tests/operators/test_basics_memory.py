"""Kernels of arithmetic, activations, reductions, products and losses allocate nothing of size."""

from __future__ import annotations

import numpy as np
import pytest
from checkers import check_memory

from gradtool.graph.composites import DOMAIN
from gradtool.graph.specs import Spec

SHAPE = (64, 16, 512)
UNARY = (
    "Neg", "Abs", "Exp", "Log", "Sqrt", "Reciprocal", "Sin", "Cos", "Erf", "Floor", "Sign",
    "Identity", "Clip", "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Gelu", "HardSigmoid",
    "HardSwish", "Sigmoid", "Tanh", "Softplus", "Softsign", "Mish", "ThresholdedRelu", "Shrink",
    "Softmax", "LogSoftmax", "IsNaN", "IsInf",
)  # fmt: skip
BINARY = (
    "Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "Mod", "Pow", "PRelu", "Less",
)  # fmt: skip
TRUTH = ("IsNaN", "IsInf", "Less")
OPTIONS = {
    "LeakyReluGrad": {"alpha": 0.1},
    "EluGrad": {"alpha": 1.0, "beta": 1.0, "gamma": 1.0},
    "HardSigmoidGrad": {"alpha": 0.2},
    "SwishGrad": {"alpha": 1.0},
    "SoftmaxGrad": {"axis": -1},
    "LogSoftmaxGrad": {"axis": 1},
}


def array(*shape, dtype=np.float32):
    return np.random.default_rng(3).uniform(0.1, 0.9, shape).astype(dtype)


def result(op, dtype):
    return Spec(SHAPE, np.dtype(bool) if op in TRUTH else np.dtype(dtype))


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("op", UNARY)
def test_unary_kernels_take_no_memory(op, dtype):
    check_memory(op, [array(*SHAPE, dtype=dtype)], [result(op, dtype)])


@pytest.mark.parametrize("other", [SHAPE, (512,), (16, 1), ()])
@pytest.mark.parametrize("op", BINARY)
def test_binary_kernels_take_no_memory(op, other):
    check_memory(op, [array(*SHAPE), array(*other)], [result(op, np.float32)])


GRADIENTS = {
    "AbsGrad": 2, "SqrtGrad": 2, "SinGrad": 2, "AsinGrad": 2, "ErfGrad": 2, "PowGrad": 3,
    "PowExponentGrad": 4, "MaxGrad": 3, "ClipGrad": 4, "ReluGrad": 2, "LeakyReluGrad": 2,
    "PReluGrad": 3, "EluGrad": 2, "GeluGrad": 2, "HardSigmoidGrad": 2, "HardSwishGrad": 2,
    "SigmoidGrad": 2, "TanhGrad": 2, "SoftplusGrad": 2, "SoftsignGrad": 2, "MishGrad": 2,
    "SwishGrad": 2, "SoftmaxGrad": 2, "LogSoftmaxGrad": 2, "ReduceLogSumExpGrad": 3,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("op", GRADIENTS)
def test_gradient_kernels_take_no_memory(op, dtype):
    inputs = [array(*SHAPE, dtype=dtype)] * GRADIENTS[op]
    check_memory(f"{DOMAIN}::{op}", inputs, [Spec(SHAPE, np.dtype(dtype))], **OPTIONS.get(op, {}))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize(
    "op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"]
)
def test_reductions_take_no_memory(op, axes, dtype):
    kept = tuple(1 if i in axes else n for i, n in enumerate(SHAPE))
    check_memory(op, [array(*SHAPE, dtype=dtype), np.array(axes)], [Spec(kept, np.dtype(dtype))])


@pytest.mark.parametrize("axes", [(0,), (2,), (0, 2)])
def test_gradients_of_extremes_take_no_memory(axes):
    kept = tuple(1 if i in axes else n for i, n in enumerate(SHAPE))
    inputs = [array(*SHAPE), array(*kept), array(*kept)]
    op = f"{DOMAIN}::ReduceExtremeGrad"
    check_memory(op, inputs, [Spec(SHAPE, np.dtype(np.float32))], axes=axes)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_take_no_memory(transposed, dtype):
    a, b = array(4, 200, 300, dtype=dtype), array(4, 300, 250, dtype=dtype)
    if transposed:
        a = array(4, 300, 200, dtype=dtype).swapaxes(1, 2)
        b = array(4, 250, 300, dtype=dtype).swapaxes(1, 2)
    check_memory("MatMul", [a, b], [Spec((4, 200, 250), np.dtype(dtype))])
    check_memory("MatMul", [a, b[0]], [Spec((4, 200, 250), np.dtype(dtype))])
    check_memory("Gemm", [a[0], b[0], a[0, :, :1]], [Spec((200, 250), np.dtype(dtype))], beta=0.5)
    summed = Spec((1, 200, 250), np.dtype(dtype))
    check_memory(f"{DOMAIN}::SummedMatMul", [a, b], [summed], axes=(0,))


@pytest.mark.parametrize("shape", [(20000, 30), (60, 30000), (8, 10, 40, 200)])
def test_losses_take_no_memory(shape):
    x, kind = array(*shape), np.dtype(np.float32)
    labels = np.random.default_rng(3).integers(0, shape[1], (shape[0], *shape[2:]))
    options = {"reduction": "mean", "ignore_index": 3}
    check_memory("SoftmaxCrossEntropyLoss", [x, labels], [Spec((), kind)], **options)
    check_memory(
        "NegativeLogLikelihoodLoss",
        [x, labels, x[0, :, 0, 0]] if len(shape) == 4 else [x, labels],
        [Spec((), kind)],
        **options,
    )
    inputs = [x, labels, None, array()]
    op = f"{DOMAIN}::SoftmaxCrossEntropyLossGrad"
    check_memory(op, inputs, [Spec(shape, kind)], **options)


def test_choices_and_conversions_take_no_memory():
    x, mask = array(*SHAPE), array(*SHAPE) > 0.5
    check_memory("Where", [mask, x, x], [Spec(SHAPE, x.dtype)])
    check_memory("Where", [mask[0, :1], x, np.float32(0)], [Spec(SHAPE, x.dtype)])
    check_memory("Cast", [x], [Spec(SHAPE, np.dtype(np.float16))], to=10)
    check_memory("CumSum", [x, np.array(1)], [Spec(SHAPE, x.dtype)], exclusive=1)
    check_memory(
        "Dropout",
        [x, np.float32(0.5), np.array(True)],
        [Spec(SHAPE, x.dtype), Spec(SHAPE, np.dtype(bool))],
        seed=1,
    )


@pytest.mark.parametrize("equation", ["bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "qbhd,kbhd->hbqk"])
def test_products_by_equation_take_no_memory(equation):
    left, right = (array(30, 40, 20, 50), array(30, 40, 20, 50))
    left_names, right_names, result = equation.replace("->", ",").split(",")
    if left_names == "bhqk":
        left, right = array(20, 30, 40, 50), array(20, 50, 30, 60)
    sizes = dict(zip(left_names + right_names, left.shape + right.shape, strict=True))
    out = Spec(tuple(sizes[i] for i in result), left.dtype)
    check_memory("Einsum", [left, right], [out], equation=equation)
