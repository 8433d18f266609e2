"""Recurrent operators and their gradients."""

from __future__ import annotations

from gradtool.kernels import _gru, _lstm, _rnn

__all__ = ["_gru", "_lstm", "_rnn"]
