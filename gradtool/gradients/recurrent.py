"""Gradients of recurrent operators: from X, the weights and every hidden state, Y."""

from __future__ import annotations

from gradtool.gradients import gradient


@gradient("LSTM")
def lstm(op, node, *dys):
    """`Y, Y_h, Y_c = LSTM(X, W, R, B, lengths, h₀, c₀, P)`: see LSTMGrad.

    Gates and cell states are computed again; of the forward pass Y is kept.
    """
    x, w, r, b, lens, h0, c0, p = _padded(node.inputs, 8)
    (y,) = op.all_outputs(node, 1)
    dx, dw, dr, db, *states = op.LSTMGrad(
        x, w, r, b, lens, h0, c0, p, y, *_padded(dys, 3), outputs=6 if p is None else 7,
        **node.attributes,
    )  # fmt: skip
    return dx, dw, dr, db, None, *states


def _padded(values, count):
    return (*values, *(None,) * count)[:count]
