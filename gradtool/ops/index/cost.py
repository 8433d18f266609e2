"""Reading and writing by indices."""

from __future__ import annotations

from typing import Any

from gradtool.ops.costs import counts, each, free
from gradtool.ops.shared.element_counts import Shaped, size

free(("Compress", "Gather", "GatherElements", "GatherND", "OneHot"))
each({
    "ArgMax": (1, 0),
    "ArgMin": (1, 0),
    "NonZero": (1, 0),
    "ai.gradtool::GatherElementsGrad": (1, 0),  # dy added to zeros
    "ai.gradtool::GatherGrad": (1, 0),
    "ai.gradtool::GatherNDGrad": (1, 0),
})  # fmt: skip


def _scattered(_: Any, __: Any, updates: Shaped, *, reduction: str = "none") -> int:
    """One operation per update, unless it replaces its element."""
    return 0 if reduction == "none" else size(updates)


counts({
    "ScatterElements": _scattered,
    "ScatterND": _scattered,
    # The numbers along the axis are sorted.
    "TopK": lambda x, *, axis=-1: size(x) * max(x.shape[axis] - 1, 0).bit_length(),
})  # fmt: skip
