"""Gradients of recurrent operators: from X, the weights and every hidden state, Y."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Node, Tensor
from gradtool.ops.gradients import Gradients, gradient
from gradtool.ops.recurrent.body_shared import padded


@gradient("LSTM")
def lstm(op: Builder, node: Node, *dys: Tensor) -> Gradients:
    """`Y, Y_h, Y_c = LSTM(X, W, R, B, lengths, h₀, c₀, P)`: see LSTMGrad.

    Gates and cell states are computed again; of the forward pass Y is kept.
    """
    x, w, r, b, lens, h0, c0, p = padded(node.inputs, 8)
    (y,) = op.all_outputs(node, 1)
    dx, dw, dr, db, *states = op.LSTMGrad(
        x, w, r, b, lens, h0, c0, p, y, *padded(dys, 3), outputs=6 if p is None else 7,
        **node.attributes,
    )  # fmt: skip
    return dx, dw, dr, db, None, *states


@gradient("GRU")
def gru(op: Builder, node: Node, *dys: Tensor) -> Gradients:
    """`Y, Y_h = GRU(X, W, R, B, lengths, h₀)`: see GRUGrad.  Of the forward pass Y is kept."""
    return _simple(op, node, dys, op.GRUGrad)


@gradient("RNN")
def rnn(op: Builder, node: Node, *dys: Tensor) -> Gradients:
    """`Y, Y_h = RNN(X, W, R, B, lengths, h₀)`: see RNNGrad.  Of the forward pass Y is kept."""
    return _simple(op, node, dys, op.RNNGrad)


def _simple(
    op: Builder, node: Node, dys: Sequence[Tensor], emit: Callable[..., Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor, None, Tensor]:
    (y,) = op.all_outputs(node, 1)
    dx, dw, dr, db, dh0 = emit(*padded(node.inputs, 6), y, *padded(dys, 2), **node.attributes)
    return dx, dw, dr, db, None, dh0
