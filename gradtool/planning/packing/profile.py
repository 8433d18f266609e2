"""Live bytes by step, and overlap of two buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gradtool.planning.liveness import Lifetime
from gradtool.planning.plan import Buffer, Span


def load_profile(
    buffers: Iterable[Lifetime | Buffer | Span], steps: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Bytes of some buffers live at each step: of all, a lower bound on the arena."""
    change = [0] * (max(steps, 1) + 1)
    for buffer in buffers:
        change[buffer.first] += buffer.bytes
        change[buffer.last + 1] -= buffer.bytes
    return np.cumsum(np.array(change[:-1], dtype=np.int64))


def overlap(buffers: Sequence[Buffer]) -> tuple[Buffer, Buffer] | None:
    """Two buffers with bytes and a step in common, if any: none in a sound plan."""
    first = np.array([b.first for b in buffers], dtype=np.int64)
    last = np.array([b.last for b in buffers], dtype=np.int64)
    start = np.array([b.offset for b in buffers], dtype=np.int64)
    stop = start + np.array([b.bytes for b in buffers], dtype=np.int64)
    for index, b in enumerate(buffers):
        shares = (first <= b.last) & (last >= b.first) & (start < stop[index]) & (stop > b.offset)
        shares[index] = False
        if shares.any():
            return b, buffers[int(shares.argmax())]
    return None
