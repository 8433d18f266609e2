"""Native kernels of LSTM and GRU, and of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import recurrent as library
from gradtool.operators.recurrence import recurrence
from gradtool.ops.native import Bound, are_floats, native, room
from gradtool.ops.shared.types import Array, Arrays

Outputs = Sequence[Spec | None]
LENGTHS = 4  # the operand of sequence lengths
OPERANDS = 8  # of LSTM, which its gradient has, too
KEPT_OUT, KEPT_IN = 3, 12  # what LSTM keeps: its output, and the input of its gradient
LINEAR = "linear_before_reset"  # the attribute of one cell


def _fits(*specs: Spec | None, out: Outputs) -> bool:
    x, _, r = specs[:3]
    lengths = specs[LENGTHS] if len(specs) > LENGTHS else None
    floats = are_floats(*(s for s in specs if s is not lengths), *out)
    if x is None or r is None or not floats or 0 in x.shape:
        return False
    return lengths is None or lengths.dtype == np.int32


def _work(
    op: str, size: Callable[..., int], x: Spec, _w: Spec, r: Spec, *_rest: Any,
    out: Outputs, **given: Any,
) -> list[Spec]:  # fmt: skip
    return room(size(recurrence(op, x, r, given)))


def _lstm_work(*inputs: Any, out: Outputs, **given: Any) -> list[Spec]:
    """Workspace of forward; its optional fourth result holds the residuals."""
    size = partial(library.lstm_work, is_kept=_is_there(out, KEPT_OUT))
    return _work("LSTM", size, *inputs, out=out, **given)


def _lstm_grad_work(*inputs: Any, out: Outputs, **given: Any) -> list[Spec]:
    """Workspace of the gradient; its optional last operand holds the residuals of forward."""
    size = partial(library.lstm_grad_work, is_kept=_is_there(inputs, KEPT_IN))
    return _work("LSTM", size, *inputs, out=out, **given)


def _is_there(operands: Sequence[object], number: int) -> bool:
    return len(operands) > number and operands[number] is not None


def kept(x: Spec, r: Spec, given: Mapping[str, Any]) -> Spec:
    """Residuals of LSTM: gates and cell states of all times."""
    return Spec((library.lstm_kept(recurrence("LSTM", x, r, given)),), np.dtype(np.float32))


def _bind(
    op: str, call: Callable[..., Bound], operands: int, results: int, *inputs: Array | None,
    out: Arrays, work: Arrays, **given: Any,
) -> Bound:  # fmt: skip
    """The call on as many operands and results as the library takes, None where one is absent."""
    taken = (*inputs, *[None] * operands)[:operands]
    wanted = (*out, *[None] * results)[:results]
    x, _, r = inputs[:3]
    assert x is not None and r is not None  # noqa: S101, PT018 - they are required
    special = {LINEAR: given[LINEAR]} if LINEAR in given else {}
    return call(recurrence(op, x, r, given), *taken, *wanted, work[0], **special)


for _op, _room, _call, _operands, _results in (
    ("LSTM", _lstm_work, library.lstm, OPERANDS, KEPT_OUT + 1),
    ("GRU", partial(_work, "GRU", library.gru_work), library.gru, 6, 2),
    ("ai.gradtool::LSTMGrad", _lstm_grad_work, library.lstm_grad, KEPT_IN + 1, 7),
    ("ai.gradtool::GRUGrad", partial(_work, "GRU", library.gru_grad_work), library.gru_grad, 9, 5),
):
    _cell = "LSTM" if "LSTM" in _op else "GRU"
    native(_op, fits=_fits, work=_room)(partial(_bind, _cell, _call, _operands, _results))
