"""Packing buffers into an arena, as far as an effort goes: into its load, then into more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gradtool.errors import UsageError
from gradtool.planning.liveness import Lifetime
from gradtool.planning.packing.greedy import greedy
from gradtool.planning.packing.problem import RANKS, Numbers, Problem, parts

FIRST_PIECE = 250_000
GROWTH = 4
CAPACITIES = 16


@dataclass
class Climb:
    """Bounds of the least capacity of `problem`: at least `bound`, at most `size`.

    Sizes are in units of the problem; `work` is the amount left to spend.
    """

    problem: Problem
    offsets: Numbers
    bound: int
    work: int
    how: str
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = height(self.problem, self.offsets)

    def run(self, hint: int | None) -> None:
        """Search until the bound is met or the work is spent; a hint is tried after the load.

        Half of the work goes to the bound, the rest to several capacities up to the size:
        whether a capacity is easy has little to do with how tight it is, so many are tried a
        little before any is tried much.
        """
        end, piece = self.work // 2, FIRST_PIECE
        while self.bound < self.size and self.work > end:
            self.attempt(self.bound, piece, end)
            piece *= GROWTH
        if hint is not None and self.bound < hint < self.size:
            self.attempt(hint, self.work // (2 * len(RANKS)))
        piece = FIRST_PIECE
        while self.bound < self.size and self.work > 0:
            size, bound = self.size, self.bound
            for capacity in sorted(
                {bound + (size - bound) * k // CAPACITIES for k in range(CAPACITIES)}
            ):
                if self.bound <= capacity < self.size:
                    self.attempt(capacity, piece)
            if (self.size, self.bound) == (size, bound):
                piece *= GROWTH

    def attempt(self, capacity: int, piece: int, end: int = 0) -> None:
        """Try each order for a piece of the work, `end` of it left for later."""
        from gradtool.planning.packing.canonical import FOUND, IMPOSSIBLE, fit

        for keys in RANKS:
            limit = min(piece, self.work - end)
            if limit <= 0:
                return
            order = ranks(self.problem, keys)
            verdict, used, offsets = fit(self.problem, order, capacity, limit)
            self.work -= used
            if verdict == FOUND:
                self.improved(np.array(offsets, dtype=np.int64), f"search {keys}")
                return
            if verdict == IMPOSSIBLE:
                self.bound = capacity + 1
                return

    def improved(self, offsets: Numbers, how: str) -> None:
        """Keep a smaller packing."""
        self.offsets, self.how, self.size = offsets, how, height(self.problem, offsets)


def height(problem: Problem, offsets: Numbers) -> int:
    """The size of a packing, in units of the problem."""
    return int((offsets + problem.size).max())


def ranks(problem: Problem, keys: str) -> list[int]:
    """The place of each buffer in an order."""
    order = problem.order(keys)
    found = np.empty_like(order)
    found[order] = np.arange(len(order))
    return [int(rank) for rank in found]


@dataclass(frozen=True, slots=True)
class Effort:
    """The limits of a search for packings beyond placing each buffer once.

    `filling` is the pairs of buffers that packing outwards looks at, `repeating` those that packing
    again and again does, `work` the buffers and sections that the search does.
    """

    work: int
    filling: int = 0
    repeating: int = 0


PLAN = Effort(work=60_000, filling=10_000_000, repeating=100_000_000)
HALVINGS = 2


@dataclass(frozen=True, slots=True)
class Packing:
    """An offset per buffer, and the size of the arena.

    `load` is the most that is live at once.  `proven` says that no arena is smaller, because it is
    the load or because a search tried everything.  `how` names its origin.
    """

    offsets: tuple[int, ...]
    size: int
    peak_live: int
    proven: bool
    how: str


def place(buffers: Sequence[Lifetime]) -> Packing:
    """Pack lifetimes for a plan: the same on every machine, whatever is installed."""
    return pack([b.bytes for b in buffers], [b.first for b in buffers], [b.last for b in buffers])


def pack(
    sizes: Sequence[int],
    first: Sequence[int],
    last: Sequence[int],
    *,
    capacity: int | None = None,
    effort: Effort = PLAN,
) -> Packing:
    """Pack buffers live from step `first` to step `last`, both included.

    `capacity` is a size that is thought to be possible, and is then tried early.  Parts without a
    step in common are packed one after the other, each only as tightly as those before it need.

    Raises:
        UsageError: a size is negative, a buffer ends before it begins, or all are 2^63 bytes.
    """
    if sum(sizes) >= 2**63:
        raise UsageError(f"values take {sum(sizes)} bytes in all: no machine has as many")
    begin, end, size = (np.array(c, dtype=np.int64) for c in (first, last, sizes))
    if not len(begin) == len(end) == len(size):
        raise UsageError("packing needs as many sizes as first and last steps")
    if (size < 0).any() or (end < begin).any():
        raise UsageError("a buffer to pack has a negative size, or ends before it begins")
    offsets = np.zeros(len(size), dtype=np.int64)
    reached, bound, peak_live, how = 0, 0, 0, "nothing to place"
    for part in parts(begin, end, size):
        found, least, name = _tight(part, max(reached, bound), capacity, effort)
        offsets[part.members] = found * part.unit
        peak_live = max(peak_live, part.peak_live * part.unit)
        bound = max(bound, least * part.unit)
        if height(part, found) * part.unit > reached:
            reached, how = height(part, found) * part.unit, name
    return Packing(tuple(offsets.tolist()), reached, peak_live, reached == bound, how)


def _tight(
    part: Problem, enough: int, capacity: int | None, effort: Effort
) -> tuple[Numbers, int, str]:
    """Offsets, a lower bound, and how; no tighter than `enough` bytes, which are needed anyway."""
    least = max(part.peak_live, enough // part.unit)
    best: tuple[Numbers, str] | None = None
    for offsets, how in greedy(part):
        if best is None or height(part, offsets) < height(part, best[0]):
            best = offsets, how
        if height(part, best[0]) <= least:
            return best[0], part.peak_live, best[1]
    assert best is not None  # noqa: S101 - there is always an order
    best = _outward(part, least, effort.filling, best)
    if height(part, best[0]) > least:
        from gradtool.planning.packing.squeaky import squeaky

        again = squeaky(part, least, effort.repeating)
        if again is not None and height(part, again) < height(part, best[0]):
            best = again, "squeaky"
    climb = Climb(part, best[0], least, effort.work, best[1])
    climb.run(None if capacity is None else capacity // part.unit)
    bound = climb.bound if climb.bound > least else part.peak_live
    return climb.offsets, bound, climb.how


def _outward(
    part: Problem, least: int, work: int, best: tuple[Numbers, str]
) -> tuple[Numbers, str]:
    """The packing found outwards within `least`, or in so many halvings of the range above it.

    Most of the work goes to `least`, a twentieth to each capacity above.
    """
    from gradtool.planning.packing.outward import outward

    step = work // 20
    found = outward(part, least, work - HALVINGS * step)
    if found is not None:
        return found, "outward"
    for _ in range(HALVINGS):
        middle = (least + height(part, best[0])) // 2
        found = outward(part, middle, step)
        if found is None:
            least = middle
        else:
            best = found, "outward"
    return best
