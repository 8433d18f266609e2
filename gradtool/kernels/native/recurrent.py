"""LSTM and GRU with their own activations, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.kernels.native import Bound, are_floats, native, room
from gradtool.kernels.types import Array, Arrays
from gradtool.native import recurrent as library

Outputs = Sequence[Spec | None]
LENGTHS = 4  # the operand of sequence lengths


def _fits(shape: Callable[..., Any], *specs: Spec | None, out: Outputs, **given: Any) -> bool:
    x, _, r = specs[:3]
    lengths = specs[LENGTHS] if len(specs) > LENGTHS else None
    floats = are_floats(*(s for s in specs if s is not lengths), *out)
    if x is None or r is None or not floats or 0 in x.shape:
        return False
    try:
        shape(x, r, **given)
    except ValueError:
        return False
    return lengths is None or lengths.dtype == np.int32


def _work(
    shape: Callable[..., Any], size: Callable[..., int], x: Spec, _w: Spec, r: Spec, *_rest: Any,
    out: Outputs, **given: Any,
) -> list[Spec]:  # fmt: skip
    return room(size(shape(x, r, **given)))


def _bind(
    call: Callable[..., Bound], operands: int, results: int, *inputs: Array | None,
    out: Arrays, work: Arrays, **given: Any,
) -> Bound:  # fmt: skip
    """The call on as many operands and results as the library takes, None where one is absent."""
    taken = (*inputs, *[None] * operands)[:operands]
    wanted = (*out, *[None] * results)[:results]
    return call(*taken, *wanted, work[0], **given)


for _op, _shape, _size, _call, _operands, _results in (
    ("LSTM", library.lstm_shape, library.lstm_work, library.lstm, 8, 3),
    ("GRU", library.gru_shape, library.gru_work, library.gru, 6, 2),
    ("ai.gradtool::LSTMGrad", library.lstm_shape, library.lstm_grad_work, library.lstm_grad, 12, 7),
    ("ai.gradtool::GRUGrad", library.gru_shape, library.gru_grad_work, library.gru_grad, 9, 5),
):
    native(_op, fits=partial(_fits, _shape), work=partial(_work, _shape, _size))(
        partial(_bind, _call, _operands, _results)
    )
