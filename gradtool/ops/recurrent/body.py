"""Composites of the recurrent family."""

from __future__ import annotations

from gradtool.ops.recurrent import (
    body_gru as _gru,
)
from gradtool.ops.recurrent import (
    body_lstm as _lstm,
)
from gradtool.ops.recurrent import (
    body_rnn as _rnn,
)

__all__ = ["_gru", "_lstm", "_rnn"]
