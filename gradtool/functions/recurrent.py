"""Composites of the recurrent family."""

from __future__ import annotations

from gradtool.functions import _lstm

__all__ = ["_lstm"]
