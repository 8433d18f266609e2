"""Kernels of the composites that com.microsoft operators become."""

from __future__ import annotations

from gradtool.ops.attention.kernel import _forward_work, attention
from gradtool.ops.kernels import kernel

kernel("ai.gradtool::ScaledAttention", strided=True, work=_forward_work)(attention)
