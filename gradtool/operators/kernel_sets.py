"""The sets of kernels that a step is planned for, and run by."""

from __future__ import annotations

from typing import Literal

Kernels = Literal["numpy", "native", "exact", "cupy", "none"]
Asked = Literal["auto", "numpy", "native", "exact", "cupy", "none"]
LIBRARY: tuple[Kernels, ...] = ("native", "exact")  # the last without Winograd's convolutions
NONE: Kernels = "none"  # of another runtime, whose workspaces are its own
AUTO: Literal["auto"] = "auto"


def of_nodes(kernels: Kernels) -> Kernels:
    """The kernels that run each node by itself, for a choice of `kernels`."""
    return "numpy" if kernels in LIBRARY else kernels
