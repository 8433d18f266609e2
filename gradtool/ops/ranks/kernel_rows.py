"""Rows of tables sharded over ranks in blocks: read from their owners, gradients sent there.

Row 0 of what a rank has is nobody's: places that are not taken point there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.errors import GradtoolError
from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.ops.kernels import kernel
from gradtool.ops.ranks.members import taking_part
from gradtool.ops.shared.select import take
from gradtool.ops.shared.sums import BLOCK
from gradtool.ops.shared.types import Array, Arrays
from gradtool.ops.update.kernel_rows import row_slots
from gradtool.ranks.group import Group

INT64 = np.dtype(np.int64)


def _read_work(own: Spec, indices: Spec) -> list[Spec]:
    n = math.prod(indices.shape)
    vectors = [Spec((n,), INT64)] * 4
    return [*vectors, Spec((n,), np.dtype(bool)), Spec((n, *own.shape[1:]), own.dtype)]


@kernel("ai.gradtool::RanksRows", work=_read_work, over=(None, 2, 3, 4))
def ranks_rows(
    xp: Any, own: Array, indices: Array, *cache: Array, out: Arrays, work: Arrays, table: str,
    bounds: Sequence[int], stale: int,
) -> None:  # fmt: skip
    """Gather from a table sharded over ranks in blocks, each different row read once.

    A `cache` has rows of others, their numbers plus one, and the step of each: a row not more
    than `stale` steps old is taken from there.  A cache that is not kept is not read.
    """
    rows, slots, *sorting, room = work
    flat = indices.reshape(-1)
    if not flat.size or out[0] is None:
        return
    row_slots(xp, flat, out=(rows, slots), work=sorting, size=bounds[-1])
    count = int(slots.max()) + 1
    found, local = (each[:count] for each in sorting[:2])
    found[slots] = rows
    kept = _kept(cache, out[1:])
    _read(own, found, room[:count], local, kept, table, bounds, stale)
    take(xp, room, slots, axis=0, out=out[0].reshape(len(flat), *own.shape[1:]))


def _kept(cache: Sequence[Array], out: Sequence[Array | None]) -> list[Array]:
    """The cache as it is kept; none where a call is not to keep it."""
    if not cache or any(each is None for each in out):
        return []
    made: list[Array] = []
    for before, after in zip(cache, out, strict=True):
        assert after is not None  # noqa: S101 - asked just now
        if not np.may_share_memory(before, after):
            np.copyto(after, before)
        made.append(after)
    return made


def _read(
    own: Array, found: Array, into: Array, local: Array, cache: list[Array], table: str,
    bounds: Sequence[int], stale: int,
) -> None:  # fmt: skip
    """Read different rows in ascending order, each from who has it, or from a cache."""
    group = _group(bounds)
    cuts = np.searchsorted(found, bounds).tolist()
    cuts[-1] = len(found)
    np.subtract(found, np.repeat(bounds[:-1], np.diff(cuts)), out=local)
    local += 1
    mine = slice(*cuts[group.rank : group.rank + 2])
    take(np, own, local[mine], axis=0, out=into[mine])
    wanted = np.ones(len(found), bool)
    wanted[mine] = False
    if cache:
        held, numbers, steps = cache
        at = found % len(held)
        fresh = (numbers[at] == found + 1) & (group.step - steps[at] <= stale) & wanted
        into[fresh] = held[at[fresh]]
        wanted &= ~fresh
    pending = []
    for rank in range(group.size):
        part = np.arange(cuts[rank], cuts[rank + 1])
        part = part[wanted[part]]
        if len(part):
            room = into[part[0] : part[-1] + 1] if not cache else np.empty_like(into[: len(part)])
            pending.append((group.windows[table].read(rank, local[part], room), part, room))
    for request, part, room in pending:
        group.wait(request)
        if cache:
            into[part] = room
            places = at[part]
            held[places], numbers[places], steps[places] = room, found[part] + 1, group.step


def _sums_work(
    rows: Spec, slots: Spec, sums: Spec, *, bounds: Sequence[int], rank: int
) -> list[Spec]:
    block = max(min(at_a_time(BLOCK) // max(math.prod(sums.shape[1:]), 1), rows.shape[0]), 1)
    return [
        Spec(rows.shape, INT64),
        Spec(rows.shape, INT64),
        Spec(sums.shape, sums.dtype),
        Spec((block, *sums.shape[1:]), sums.dtype),
        Spec((bounds[rank + 1] - bounds[rank] + 1,), INT64),
    ]


@kernel("ai.gradtool::RanksRowSums", work=_sums_work, over=(3, 4))
def ranks_row_sums(
    xp: Any, rows: Array, slots: Array, sums: Array, taken: Array, totals: Array, *, out: Arrays,
    work: Arrays, table: str, bounds: Sequence[int], rank: int, stale: int,
) -> None:  # fmt: skip
    """Add the gradients of rows, of all ranks in their order, to the sums of their owners.

    `totals` are these, of the rows in `taken`, which are found in the order in which they
    come; with `stale` steps each row has a place of its own, and who sends adds to it.
    """
    for before, after in zip((taken, totals), out, strict=True):
        if after is not None and not np.may_share_memory(before, after):
            np.copyto(after, before)
    group = _group(bounds)
    found, *rooms, block, places = work
    count = int(slots.max()) + 1 if len(slots) else 0
    found = found[:count]
    found[slots] = rows
    cuts = np.searchsorted(found, bounds).tolist()
    cuts[-1] = count
    found -= np.repeat(bounds[:-1], np.diff(cuts))
    found += 1
    if stale and group.size > 1:
        _add_there(group, found, sums, cuts, table)
        return
    assert out[0] is not None and out[1] is not None  # noqa: S101, PT018 - state is always wanted
    ids, added = out
    used = int(np.count_nonzero(ids))
    places.fill(0)
    places[ids[1 : used + 1]] = np.arange(1, used + 1)
    for numbers, values in group.deliver(found, sums[:count], cuts, (rooms[0], rooms[1])):
        new = numbers[places[numbers] == 0]
        if used + len(new) >= len(ids):
            raise GradtoolError(
                f"more rows of {table!r} are read in a step than there is room for: batches have to"
                " be of one size"
            )
        places[new] = np.arange(used + 1, used + len(new) + 1)
        ids[used + 1 : used + len(new) + 1] = new
        used += len(new)
        at = places[numbers]
        for start in range(0, len(at), len(block)):
            some = at[start : start + len(block)]
            held = block[: len(some)]
            take(np, added, some, axis=0, out=held)
            held += values[start : start + len(block)]
            added[some] = held


def _add_there(group: Group, local: Array, sums: Array, cuts: Sequence[int], table: str) -> None:
    """Add to the rows of each rank, where they lie, in no order."""
    pending = []
    for rank in range(group.size):
        part = slice(*cuts[rank : rank + 2])
        if part.stop > part.start:
            numbers = local[part]
            taken = group.windows[f"{table}/taken"].add(rank, numbers, numbers, largest=True)
            pending += [taken, group.windows[f"{table}/sums"].add(rank, numbers, sums[part])]
    for each in pending:
        group.wait(each)


def _group(bounds: Sequence[int]) -> Group:
    """The group of ranks; one rank alone has all rows."""
    group = taking_part() or Group()
    if group.size != len(bounds) - 1:
        raise GradtoolError(
            f"rows of this model lie on {len(bounds) - 1} ranks, which have to run it together"
        )
    return group
