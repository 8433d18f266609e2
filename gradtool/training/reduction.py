"""Gradients summed over ranks during backward, in buckets final together.

Sums of gradients lie in the arena in the order in which a step is done with them, so that a bucket
is one piece of it and nothing is copied.  A bucket is on its way as soon as its last sum is final;
between the nodes that follow, the engine is asked how far it is, which brings it forward.

Source: PyTorch's DistributedDataParallel (Li et al. 2020), whose buckets are copies.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from gradtool.errors import GradtoolError
from gradtool.ranks.group import Group, Pending
from gradtool.session import Session

ASKING = 0.1  # of the time of nodes goes to the engine, while something is on its way
BUCKET = 4 << 20  # bytes that are worth a message: a larger sum is a bucket of its own


class Reducer:
    """Sums over all ranks what the last step before an update leaves; its `settling`.

    State that is none of the `sums` of gradients is divided by the number of ranks: running
    statistics, of which each rank has those of its own examples.
    """

    def __init__(
        self, group: Group, session: Session, sums: Collection[str], apart: Collection[str] = ()
    ) -> None:
        """Gradients left out of buckets: `apart`, summed by backward itself, or of one rank."""
        self._group, self._session, self._sums = group, session, sums
        self._types = {
            name: dtype for name, dtype in session.stepped.items()
            if "float" in dtype.name and name not in apart
        }  # fmt: skip
        self._buckets: list[list[str]] = []
        self._open: set[str] = set()
        self._left: list[list[str]] = []
        self._pending: list[Pending] = []
        self._asked = 0.0

    def settled(self, name: str) -> None:
        """A sum is final: begin with the buckets that are, in their order."""
        if name not in self._types:
            return
        if not self._open:
            self._begin()
        self._open.discard(name)
        while self._left and self._open.isdisjoint(self._left[0]):
            if not self._pending:
                self._asked = time.perf_counter()
            array = self._session.span(self._left.pop(0))
            self._pending.append(self._group.add(array))

    def between(self) -> None:
        """Progress the pending sums, for a share of a node's time."""
        if not self._pending:
            return
        start = time.perf_counter()
        end = start + ASKING * (start - self._asked)
        while self._pending and time.perf_counter() < end:
            if self._pending[0].test():
                self._pending.pop(0)
        self._asked = time.perf_counter()

    def finish(self) -> None:
        """Wait for all that is on its way; every rank has the same sums then.

        Raises:
            Lost: some rank has not come to the same place in time.
        """
        for pending in self._pending:
            self._group.wait(pending)
        self._pending.clear()
        others = [name for name in self._types if name not in self._sums]
        if self._group.size > 1 and others:
            for held in self._session.values(*others, copy=False).values():
                np.divide(held, self._group.size, out=held, casting="same_kind")

    def _begin(self) -> None:
        """All sums of a step are open again; the first step has given them their places."""
        if not self._buckets:
            self._buckets = buckets(self._session.spans, self._types)
        self._left = list(self._buckets)
        self._open = set(self._types)


def buckets(
    spans: Mapping[str, tuple[int, int]], types: Mapping[str, np.dtype[Any]]
) -> list[list[str]]:
    """The names among `types` in buckets of one type each, of neighbours in the arena.

    `spans` are their offsets and bytes, in order.
    """
    found: list[list[str]] = []
    end = size = 0
    for name in (name for name in spans if name in types):
        offset, count = spans[name]
        alike = bool(found) and types[found[-1][0]] == types[name] and offset == end
        if not alike or size + count > BUCKET:
            found.append([])
            size = 0
        found[-1].append(name)
        end, size = offset + count, size + count
    return found


def require_same(group: Group, values: Mapping[str, np.ndarray[Any, Any]], step: int) -> None:
    """Compare trained tensors over the ranks, by checksums of each array.

    Raises:
        GradtoolError: some rank has other bits; the first name is in it.
    """
    if group.size == 1:
        return
    found = [zlib.crc32(np.ascontiguousarray(each).view(np.uint8).data) if each.size else 0
             for each in values.values()]  # fmt: skip
    sums = group.gather(np.array(found, np.uint32))
    for name, column in zip(values, sums.T, strict=True):
        odd = [rank for rank in range(group.size) if column[rank] != column[0]]
        if odd:
            raise GradtoolError(
                f"{name!r} is not the same on ranks 0 and {odd[0]} after step {step}: "
                "a bug, or a machine that computes wrong"
            )
