"""Composites of the recurrent family."""

from __future__ import annotations

from gradtool.functions import _gru, _lstm, _rnn

__all__ = ["_gru", "_lstm", "_rnn"]
