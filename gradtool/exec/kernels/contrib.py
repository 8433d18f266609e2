"""Kernels of the composites that com.microsoft operators become."""

from __future__ import annotations

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels.attention import _forward_work, attention

kernel("ai.gradtool::ScaledAttention", strided=True, work=_forward_work)(attention)
