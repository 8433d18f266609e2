"""LSTM and GRU of sigmoid and tanh without clipping or coupled gates, and their gradients.

Gates lie as ONNX has them: i, o, f, c and z, r, h.  Everything else of ONNX is here: directions,
both layouts, lengths, initial states, peepholes, `linear_before_reset`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.native.attention import panel_floats
from gradtool.native.call import Array, Call, Signature
from gradtool.native.gemm import product_floats
from gradtool.operators.recurrence import Recurrence

SIZES = "times batch inputs hidden directions reverse layout"
LSTM = Signature("lstm", "x w r b lens h0 c0 p y y_h y_c kept work", f"{SIZES} slots")
LSTM_GRAD = Signature(
    "lstm_grad",
    "x w r b lens h0 c0 p y dy dy_h dy_c kept dx dw dr db dh0 dc0 dp work",
    f"{SIZES} slots",
)
GRU = Signature("gru", "x w r b lens h0 y y_h work", f"{SIZES} linear slots")
GRU_GRAD = Signature(
    "gru_grad", "x w r b lens h0 y dy dy_h dx dw dr db dh0 work", f"{SIZES} linear slots"
)
SAMPLES = 512  # rows of X that are multiplied at once in forward


def _forward_work(n: Recurrence, states: int, *, is_kept: bool = False) -> int:
    many = min(n.times, -(-SAMPLES // max(n.batch, 1))) * n.batch
    size, rows = n.hidden, 0 if is_kept else n.rows
    return 4 * (
        n.rows + states * n.batch * size + many * (rows + n.inputs * n.layout)
        + n.gates * panel_floats(size, size) + product_floats(many, n.rows, n.inputs)
    )  # fmt: skip


def lstm_kept(n: Recurrence) -> int:
    """Floats of `lstm`'s reserve space for `lstm_grad`: gates, and cell states of all times."""
    return len(n.backwards) * n.batch * (n.times * n.rows + (n.times + 1) * n.hidden)


def lstm_work(n: Recurrence, *, is_kept: bool = False) -> int:
    """Bytes of workspace of `lstm`; fewer where gates are kept."""
    return _forward_work(n, 3, is_kept=is_kept)


def gru_work(n: Recurrence) -> int:
    """Bytes of workspace of `gru`."""
    return _forward_work(n, 3)


def _products(n: Recurrence) -> int:
    """Floats of workspace of the largest product over all times."""
    all_rows, rows = n.times * n.batch, n.rows
    sizes = (
        (all_rows, rows, n.inputs), (all_rows, rows, n.hidden), (rows, n.inputs, all_rows),
        (rows, n.hidden, all_rows), (all_rows, n.inputs, rows),
    )  # fmt: skip
    return max(product_floats(*size) for size in sizes)


def lstm_grad_work(n: Recurrence, *, is_kept: bool = False) -> int:
    """Bytes of workspace of `lstm_grad`: gates, cell states and hidden states of all times.

    Without the cell states where they are kept.
    """
    state, rows = n.batch * n.hidden, n.times * n.batch
    cells = 0 if is_kept else n.times + 1
    held = rows * (n.rows + n.hidden + n.inputs * n.layout) + (cells + 2) * state
    return 4 * (n.rows + held + panel_floats(n.rows, n.hidden) + _products(n))


def gru_grad_work(n: Recurrence) -> int:
    """Bytes of workspace of `gru_grad`: gates, q and hidden states of all times."""
    state, rows, size = n.batch * n.hidden, n.times * n.batch, n.hidden
    held = rows * (n.rows + 2 * size + n.inputs * n.layout) + 2 * state
    places = panel_floats(2 * size, size) + panel_floats(size, size)
    return 4 * (n.rows + held + places + _products(n))


def _sizes(n: Recurrence, lens: Array | None) -> dict[str, Any]:
    if lens is not None and lens.dtype != np.int32:
        raise TypeError(f"lengths of {lens.dtype}: int32 is known")
    return {
        "lens": lens, "times": n.times, "batch": n.batch, "inputs": n.inputs, "hidden": n.hidden,
        "directions": len(n.backwards), "reverse": int(n.backwards[0]), "layout": n.layout,
    }  # fmt: skip


def lstm(
    n: Recurrence, x: Array, w: Array, r: Array, b: Array | None, lens: Array | None,
    h0: Array | None, c0: Array | None, p: Array | None, y: Array | None, y_h: Array | None,
    y_c: Array | None, kept: Array | None, work: Array,
) -> Call:  # fmt: skip
    """`(Y, Y_h, Y_c)` and the reserve space for `lstm_grad`, each if wanted."""
    return LSTM.bind(
        x=x, w=w, r=r, b=b, h0=h0, c0=c0, p=p, y=y, y_h=y_h, y_c=y_c, kept=kept, work=work,
        **_sizes(n, lens),
    )  # fmt: skip


def lstm_grad(
    n: Recurrence, x: Array, w: Array, r: Array, b: Array | None, lens: Array | None,
    h0: Array | None, c0: Array | None, p: Array | None, y: Array, dy: Array | None,
    dy_h: Array | None, dy_c: Array | None, kept: Array | None, dx: Array | None, dw: Array | None,
    dr: Array | None, db: Array | None, dh0: Array | None, dc0: Array | None, dp: Array | None,
    work: Array,
) -> Call:  # fmt: skip
    """Gradients by X, W, R, B, the initial states and P, each if wanted.

    Without the reserve space of `lstm` its content is recomputed.
    """
    return LSTM_GRAD.bind(
        x=x, w=w, r=r, b=b, h0=h0, c0=c0, p=p, y=y, dy=dy, dy_h=dy_h, dy_c=dy_c, kept=kept, dx=dx,
        dw=dw, dr=dr, db=db, dh0=dh0, dc0=dc0, dp=dp if p is not None else None, work=work,
        **_sizes(n, lens),
    )  # fmt: skip


def gru(
    n: Recurrence, x: Array, w: Array, r: Array, b: Array | None, lens: Array | None,
    h0: Array | None, y: Array | None, y_h: Array | None, work: Array, *,
    linear_before_reset: int = 0,
) -> Call:  # fmt: skip
    """`(Y, Y_h)`, each if wanted."""
    return GRU.bind(
        x=x, w=w, r=r, b=b, h0=h0, y=y, y_h=y_h, work=work, linear=int(bool(linear_before_reset)),
        **_sizes(n, lens),
    )  # fmt: skip


def gru_grad(
    n: Recurrence, x: Array, w: Array, r: Array, b: Array | None, lens: Array | None,
    h0: Array | None, y: Array, dy: Array | None, dy_h: Array | None, dx: Array | None,
    dw: Array | None, dr: Array | None, db: Array | None, dh0: Array | None, work: Array, *,
    linear_before_reset: int = 0,
) -> Call:  # fmt: skip
    """Gradients by X, W, R, B and the initial state, each if wanted."""
    return GRU_GRAD.bind(
        x=x, w=w, r=r, b=b, h0=h0, y=y, dy=dy, dy_h=dy_h, dx=dx, dw=dw, dr=dr, db=db, dh0=dh0,
        work=work, linear=int(bool(linear_before_reset)), **_sizes(n, lens),
    )  # fmt: skip
