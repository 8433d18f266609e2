"""Recurrent operators and their gradients."""

from __future__ import annotations

from gradtool.exec.kernels import _lstm

__all__ = ["_lstm"]
