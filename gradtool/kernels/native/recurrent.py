"""LSTM and GRU with their own activations, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.kernels.native import Bound, are_floats, native, room
from gradtool.kernels.types import Array, Arrays
from gradtool.native import recurrent as library
from gradtool.operators.recurrence import Recurrence, recurrence

Outputs = Sequence[Spec | None]
LENGTHS = 4  # the operand of sequence lengths
SPECIAL = ("input_forget", "linear_before_reset")  # attributes of one cell


def _sizes(op: str, x: Spec | Array, r: Spec | Array, given: Mapping[str, Any]) -> Recurrence:
    """Sizes and options of a node; Raises ValueError for what no kernel takes."""
    if op == "LSTM":
        return recurrence(x, r, 4, ("Sigmoid", "Tanh", "Tanh"), **given)
    return recurrence(x, r, 3, ("Sigmoid", "Tanh"), **given)


def _fits(op: str, *specs: Spec | None, out: Outputs, **given: Any) -> bool:
    x, _, r = specs[:3]
    lengths = specs[LENGTHS] if len(specs) > LENGTHS else None
    floats = are_floats(*(s for s in specs if s is not lengths), *out)
    if x is None or r is None or not floats or 0 in x.shape:
        return False
    return library.knows(_sizes(op, x, r, given)) and (lengths is None or lengths.dtype == np.int32)


def _work(
    op: str, size: Callable[..., int], x: Spec, _w: Spec, r: Spec, *_rest: Any,
    out: Outputs, **given: Any,
) -> list[Spec]:  # fmt: skip
    return room(size(_sizes(op, x, r, given)))


def _bind(
    op: str, call: Callable[..., Bound], operands: int, results: int, *inputs: Array | None,
    out: Arrays, work: Arrays, **given: Any,
) -> Bound:  # fmt: skip
    """The call on as many operands and results as the library takes, None where one is absent."""
    taken = (*inputs, *[None] * operands)[:operands]
    wanted = (*out, *[None] * results)[:results]
    x, _, r = inputs[:3]
    assert x is not None and r is not None  # noqa: S101, PT018 - they are required
    special = {name: given[name] for name in SPECIAL if name in given}
    return call(_sizes(op, x, r, given), *taken, *wanted, work[0], **special)


for _op, _size, _call, _operands, _results in (
    ("LSTM", library.lstm_work, library.lstm, 8, 3),
    ("GRU", library.gru_work, library.gru, 6, 2),
    ("ai.gradtool::LSTMGrad", library.lstm_grad_work, library.lstm_grad, 12, 7),
    ("ai.gradtool::GRUGrad", library.gru_grad_work, library.gru_grad, 9, 5),
):
    _cell = "LSTM" if "LSTM" in _op else "GRU"
    native(_op, fits=partial(_fits, _cell), work=partial(_work, _cell, _size))(
        partial(_bind, _cell, _call, _operands, _results)
    )
