"""Recurrent operators and their gradients."""

from __future__ import annotations

from gradtool.ops.recurrent import kernel_gru, kernel_lstm, kernel_rnn

__all__ = ["kernel_gru", "kernel_lstm", "kernel_rnn"]
