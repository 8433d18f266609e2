"""Composites of the recurrent family."""

from __future__ import annotations

from gradtool.ops.recurrent import body_gru, body_lstm, body_rnn

__all__ = ["body_gru", "body_lstm", "body_rnn"]
