"""Roofline of a step: the least time it needs on its machine, by its operations and bytes.

Source: Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures" (CACM 52(4), 2009).  The two roofs are measured: a matrix product, a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Reach:
    """Operations per second of a large matrix product, and bytes per second of a large copy.

    A copy reads as many bytes as it writes; both count.
    """

    flops: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Rate:
    """Rates of a step per second; `share` of the roof above it, 1 at the roof.

    An algorithm with fewer operations than are counted, as Winograd's, may lie above the roof, and
    so may a step whose data is in a cache.
    """

    flops: float
    bytes: float
    roof: Literal["product", "copy"]
    share: float


def rate(flops: int | None, moved: int, seconds: float, reach: Reach) -> Rate | None:
    """The rate of a step of so many operations and bytes; None where nothing can be said."""
    operations = flops or 0
    if seconds <= 0 or not operations + moved:
        return None
    computing, moving = operations / reach.flops, moved / reach.bytes
    return Rate(
        operations / seconds,
        moved / seconds,
        "product" if computing >= moving else "copy",
        max(computing, moving) / seconds,
    )
