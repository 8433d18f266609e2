"""Addresses for buffers of known size and lifetime, so that no two live ones overlap.

Source: greedy by size with best fit, Pisarchyk and Lee 2020 (arXiv:2001.03288), §5.2; unlike them
we also try first use as the order, and keep the smaller arena.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtool.planning.liveness import Lifetime
from gradtool.planning.plan import Buffer


def place(buffers: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Offsets in bytes, one per buffer, and the bytes of the arena that holds them all."""
    orders = (
        sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].first, i)),
        sorted(range(len(buffers)), key=lambda i: (buffers[i].first, -buffers[i].bytes, i)),
        sorted(
            range(len(buffers)),
            key=lambda i: (-buffers[i].bytes * (buffers[i].last - buffers[i].first + 1), i),
        ),
    )
    steps = max((b.last for b in buffers), default=0) + 1
    least = int(load_profile(buffers, steps).max())
    tried = []
    for order in orders:
        tried.append(_best_fit(buffers, order))
        if tried[-1][1] == least:
            break
    return min(tried, key=lambda result: result[1])


def _best_fit(buffers: Sequence[Lifetime], order: Sequence[int]) -> tuple[list[int], int]:
    """Place buffers one by one into the smallest gap that holds them."""
    count = len(buffers)
    first = np.array([b.first for b in buffers], dtype=np.int64)
    last = np.array([b.last for b in buffers], dtype=np.int64)
    start = np.zeros(count, dtype=np.int64)
    stop = np.zeros(count, dtype=np.int64)
    placed = np.zeros(count, dtype=bool)
    for index in order:
        buffer = buffers[index]
        rivals = np.flatnonzero(placed & (first <= buffer.last) & (last >= buffer.first))
        rivals = rivals[np.argsort(start[rivals], kind="stable")]
        start[index] = _smallest_gap(start[rivals], stop[rivals], buffer.bytes)
        stop[index] = start[index] + buffer.bytes
        placed[index] = True
    return start.tolist(), int(stop.max(initial=0))


def _smallest_gap(
    start: np.ndarray[tuple[int], np.dtype[np.int64]],
    stop: np.ndarray[tuple[int], np.dtype[np.int64]],
    size: int,
) -> int:
    """Where `size` bytes fit most tightly between occupied intervals, else after them all."""
    reach = np.maximum.accumulate(np.concatenate(([0], stop)))
    gaps = start - reach[:-1]
    fits = np.flatnonzero(gaps >= size)
    if fits.size == 0:
        return int(reach[-1])
    return int(reach[fits[np.argmin(gaps[fits])]])


def load_profile(
    buffers: Sequence[Lifetime], steps: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Bytes live at each step: a lower bound on the arena for this order."""
    change = np.zeros(max(steps, 1) + 1, dtype=np.int64)
    for buffer in buffers:
        change[buffer.first] += buffer.bytes
        change[buffer.last + 1] -= buffer.bytes
    return np.cumsum(change[:-1])


def overlap(buffers: Sequence[Buffer]) -> tuple[Buffer, Buffer] | None:
    """Two buffers that share bytes and a step, if there are any: none in a sound plan."""
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
