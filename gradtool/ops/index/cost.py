"""Reading and writing by indices."""

from __future__ import annotations

from typing import Any

from gradtool.ops.costs import cost, free
from gradtool.ops.shared.element_counts import Results, Shaped, size

free(("Compress", "Gather", "GatherElements", "GatherND", "OneHot"))


@cost("ScatterElements", "ScatterND")
def scatter(
    _: Shaped, __: Shaped, updates: Shaped, *, out: Results, reduction: str = "none", **___: Any
) -> int:
    """One operation per update, unless it replaces its element."""
    del out
    return 0 if reduction == "none" else size(updates)


@cost("ai.gradtool::GatherElementsGrad", "ai.gradtool::GatherGrad", "ai.gradtool::GatherNDGrad")
def gather_grad(dy: Shaped, *_: Any, out: Results, **__: Any) -> int:
    """Dy added to zeros."""
    del out
    return size(dy)


@cost("ArgMax", "ArgMin", "NonZero")
def compared(x: Shaped) -> int:
    """One comparison per element."""
    return size(x)


@cost("TopK")
def top_k(x: Shaped, *, axis: int = -1) -> int:
    """The numbers along the axis are sorted."""
    return size(x) * max(x.shape[axis] - 1, 0).bit_length()
