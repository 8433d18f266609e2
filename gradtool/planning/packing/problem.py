"""Buffers that share memory, in units and sections of packing; live bytes by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradtool.planning.liveness import Lifetime
from gradtool.planning.plan import Buffer, Span

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]

RANKS = ("TLA", "TAL", "TCA", "LAT", "CAT")


@dataclass(frozen=True)
class Problem:
    """Sizes, in `unit` bytes, of buffers live in sections from `start` up to, not with, `stop`.

    A section is a run of steps inside of which no buffer begins or ends.  `length` is in steps, and
    `members` says which buffers of the whole these are.
    """

    members: Numbers
    start: Numbers
    stop: Numbers
    length: Numbers
    size: Numbers
    unit: int

    @cached_property
    def profile(self) -> Numbers:
        """The load of each section."""
        change = np.zeros(int(self.stop.max()) + 1, dtype=np.int64)
        np.add.at(change, self.start, self.size)
        np.add.at(change, self.stop, -self.size)
        return np.cumsum(change[:-1])

    @cached_property
    def peak_live(self) -> int:
        """The largest load: no packing is smaller."""
        return int(self.profile.max())

    def of(self, some: Numbers) -> Problem:
        """Some of the buffers, by number, in the same units and sections."""
        names = ("members", "start", "stop", "length", "size")
        return replace(self, **{name: getattr(self, name)[some] for name in names})

    def order(self, keys: str) -> Numbers:
        """Buffers by descending keys, then by number.

        The keys are `T`, the largest load of a section in which the buffer lives; `L`, its length
        in steps; `C`, in sections; `S`, its size; and `A`, its size times its length.

        Source: the preorders of MiniMalloc, ASPLOS 2023; unlike it, we also try sections.
        """
        width = self.stop - self.start
        area = self.size * self.length.astype(float)
        values = {"L": self.length, "C": width, "S": self.size, "A": area}
        if "T" in keys:
            values["T"] = _largest(self.profile, self.start, self.stop)
        return np.lexsort([-values[key] for key in reversed(keys)])


def _largest(profile: Numbers, start: Numbers, stop: Numbers) -> Numbers:
    """The largest element of each `profile[start:stop]`, by a sparse table."""
    table, level = [profile], 1
    while 2 * level <= len(profile):
        table.append(np.maximum(table[-1][:-level], table[-1][level:]))
        level *= 2
    width = stop - start
    found = np.empty_like(start)
    for k, row in enumerate(table):
        here = (width >> k) == 1
        found[here] = np.maximum(row[start[here]], row[stop[here] - (1 << k)])
    return found


def parts(first: Numbers, last: Numbers, size: Numbers) -> Iterator[Problem]:
    """Parts without a step in common, the largest load first; empty buffers are in none."""
    (real,) = np.nonzero(size)
    real = real[np.lexsort((last[real], first[real]))]
    reach = np.maximum.accumulate(last[real])
    cuts = np.flatnonzero(first[real][1:] > reach[:-1]) + 1
    found = [_part(members, first, last, size) for members in np.split(real, cuts) if members.size]
    yield from sorted(found, key=lambda part: -part.peak_live * part.unit)


def _part(members: Numbers, first: Numbers, last: Numbers, size: Numbers) -> Problem:
    members = np.sort(members)
    begin, end = first[members], last[members] + 1
    edges = np.array(sorted({*begin.tolist(), *end.tolist()}))  # `unique` imports numpy.ma
    unit = int(np.gcd.reduce(size[members]))
    return Problem(
        members=members,
        start=np.searchsorted(edges, begin),
        stop=np.searchsorted(edges, end),
        length=end - begin,
        size=size[members] // unit,
        unit=unit,
    )


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
