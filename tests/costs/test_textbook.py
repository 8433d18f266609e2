"""Counts against operators that are executed: `textbook` says how often something is computed."""

from __future__ import annotations

import numpy as np
import pytest
from costs import textbook
from costs.counting import count
from costs.textbook import operations

X = (3, 4)
ROWS = (4, 6, 5)  # rows of 5, or 6 channels
PLANE, KERNEL = (1, 2, 8, 8), {"kernel_shape": (3, 2)}
IMAGE, TAPS, MADE = (2, 6, 5, 4), (4, 3, 3, 2), (2, 4, 3, 3)  # two groups
Q, K, V = (2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 6)  # four heads of queries, two of keys
T, B, I, H = 5, 3, 4, 2  # noqa: E741 - the names of the operands
KEPT = {"hidden_size": H}

ELEMENTWISE = {
    "Sigmoid": textbook.sigmoid,
    "Softplus": textbook.softplus,
    "Softsign": lambda x: x / (1 + abs(x)),
    "Swish": lambda x: x / (1 + np.exp(-1 * x)),
    "HardSigmoid": lambda x: np.maximum(np.minimum(1 * x + 1, 1), 0),
    "Mish": lambda x: x * np.tanh(textbook.softplus(x)),
    "Gelu": lambda x: 1 * x * (1 + np.frompyfunc(textbook.Number.erf, 1, 1)(x / 1)),
    "Softmax": textbook.softmax,
    "Tanh": np.tanh,
    "ai.gradtool::SigmoidGrad": lambda y: y * (1 - y) * y,
    "ai.gradtool::TanhGrad": lambda y: (1 - y * y) * y,
    "ai.gradtool::SoftmaxGrad": lambda y: y * (y - textbook.total(y * y, keepdims=True)),
    "ai.gradtool::LogSoftmaxGrad": lambda y: y - np.exp(y) * textbook.total(y, keepdims=True),
}

# Operator, its textbook form, operands, result, attributes, options of the textbook form.
EXECUTED = [
    ("MatMul", textbook.matmul, [(2, 3, 4), (4, 5)], (2, 3, 5), {}, {}),
    ("Gemm", textbook.gemm, [(3, 4), (4, 5)], (3, 5), {}, {}),
    ("Gemm", textbook.gemm, [(3, 4), (4, 5), (5,)], (3, 5), {}, {}),
    ("Gemm", textbook.gemm, [(3, 4), (4, 5), (5,)], (3, 5), {"alpha": 2.0, "beta": 3.0}, None),
    ("Conv", textbook.conv, [IMAGE, TAPS], MADE, {"group": 2}, None),
    ("Conv", textbook.conv, [IMAGE, TAPS, (4,)], MADE, {"group": 2}, None),
    ("Conv", textbook.conv, [(1, 3, 9), (4, 3, 2)], (1, 4, 8), {}, {}),
    ("ConvTranspose", textbook.conv_transpose, [MADE, TAPS], IMAGE, {"group": 2}, None),
    ("ConvTranspose", textbook.conv_transpose, [MADE, TAPS, (6,)], IMAGE, {"group": 2}, None),
    ("ai.gradtool::ConvGradInput", textbook.conv_transpose, [MADE, TAPS, None], IMAGE,
     {"group": 2, "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}, {"group": 2}),
    ("Attention", textbook.attention, [Q, K, V], (2, 4, 3, 6), {}, {}),
    ("Attention", textbook.attention, [Q, K, V, (3, 5)], (2, 4, 3, 6), {}, {}),
    ("LayerNormalization", textbook.layer_norm, [ROWS, (5,)], ROWS, {}, {}),
    ("LayerNormalization", textbook.layer_norm, [ROWS, (5,), (5,)], ROWS, {}, {}),
    ("RMSNormalization", textbook.rms_norm, [ROWS, (5,)], ROWS, {}, {}),
    ("BatchNormalization", textbook.batch_norm, [ROWS, *[(6,)] * 4], ROWS, {}, {}),
    ("LRN", textbook.lrn, [ROWS], ROWS, {"size": 3}, None),
    ("MaxPool", textbook.max_pool, [PLANE], (1, 2, 6, 7), KERNEL, None),
    ("AveragePool", textbook.average_pool, [PLANE], (1, 2, 6, 7), KERNEL, None),
    ("LpPool", textbook.lp_pool, [PLANE], (1, 2, 6, 7), {**KERNEL, "p": 3}, None),
    ("LpPool", textbook.lp_pool, [PLANE], (1, 2, 6, 7), {**KERNEL, "p": 2}, None),
    ("LSTM", textbook.lstm, [(T, B, I), (1, 4 * H, I), (1, 4 * H, H)], (T, 1, B, H), KEPT, {}),
    ("LSTM", textbook.lstm, [(T, B, I), (1, 4 * H, I), (1, 4 * H, H), (1, 8 * H)], (T, 1, B, H),
     KEPT, {}),
    ("GRU", textbook.gru, [(T, B, I), (1, 3 * H, I), (1, 3 * H, H)], (T, 1, B, H), KEPT, {}),
    ("GRU", textbook.gru, [(T, B, I), (1, 3 * H, I), (1, 3 * H, H), (1, 6 * H)], (T, 1, B, H),
     KEPT, {}),
    ("RNN", textbook.rnn, [(T, B, I), (1, H, I), (1, H, H)], (T, 1, B, H), KEPT, {}),
    ("SoftmaxCrossEntropyLoss", textbook.cross_entropy, [X, (3,)], (), {}, {}),
    ("SoftmaxCrossEntropyLoss", textbook.cross_entropy, [X, (3,)], (), {"reduction": "sum"}, None),
]  # fmt: skip


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_an_activation_counts_what_its_formula_computes(op):
    operands = [X, X] if op.endswith("Grad") else [X]
    along = {"axis": -1} if op.endswith("SoftmaxGrad") else {}

    assert count(op, *operands, out=[X], opset=24, **along) == operations(ELEMENTWISE[op], X)


@pytest.mark.parametrize(
    ("op", "function", "operands", "out", "attributes", "options"),
    EXECUTED,
    ids=[f"{row[0]}-{len(row[2])}-{i}" for i, row in enumerate(EXECUTED)],
)
def test_an_operator_counts_what_its_textbook_form_computes(
    op, function, operands, out, attributes, options
):
    executed = operations(function, *operands, **(attributes if options is None else options))

    assert count(op, *operands, out=[out], opset=23, **attributes) == executed


def test_a_batch_normalisation_in_training_counts_its_running_statistics():
    given = [ROWS, *[(6,)] * 4]
    found = count("BatchNormalization", *given, out=[ROWS, (6,), (6,)], training_mode=1)

    assert found == operations(textbook.batch_norm_training, *given)


def test_the_gradient_of_a_layer_normalisation_counts_what_its_formula_computes():
    given = [ROWS, (5,), (4, 6, 1), (4, 6, 1), ROWS]
    found = count("ai.gradtool::LayerNormalizationGrad", *given, out=[ROWS, (5,), (5,)], axis=-1)

    assert found == operations(textbook.layer_norm_grad, *given)
