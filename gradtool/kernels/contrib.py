"""Kernels of the composites that com.microsoft operators become."""

from __future__ import annotations

from gradtool.kernels import kernel
from gradtool.kernels.attention import _forward_work, attention

kernel("ai.gradtool::ScaledAttention", strided=True, work=_forward_work)(attention)
