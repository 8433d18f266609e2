"""Recurrent operators and their gradients."""

from __future__ import annotations

from gradtool.ops.recurrent import (
    kernel_gru as _gru,
)
from gradtool.ops.recurrent import (
    kernel_lstm as _lstm,
)
from gradtool.ops.recurrent import (
    kernel_rnn as _rnn,
)

__all__ = ["_gru", "_lstm", "_rnn"]
