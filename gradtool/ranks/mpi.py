"""Ranks started by an MPI, reached through mpi4py.

Sums are begun without waiting, and come forward when somebody asks how far they are: between the
steps of backward.  Nobody waits longer than `timeout`, so that a rank that hangs ends all.

Source: MPI 4.1, chapter 6 (nonblocking collective operations).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Never

import numpy as np

from gradtool.errors import UsageError
from gradtool.ranks.group import Array, Group, Lost, Pending, Window, share
from gradtool.ranks.started import missing
from gradtool.ranks.windows import RowWindow
from gradtool.text.words import some

ASKED = 1.0  # seconds that ranks have to say that they wait, too
SPINS = 200  # tests before waiting leaves the processor to others
PAUSE = 5e-5  # seconds
BLOCK = 1 << 16  # elements that are added up at once


def available(what: str) -> Any:
    """The module `MPI` of mpi4py, initialized.

    Raises:
        UsageError: mpi4py is missing, or finds no MPI.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        hint = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        raise UsageError(missing(what) + hint) from error
    return MPI


class Ranks(Group):
    """All ranks started together."""

    def __init__(self, *, timeout: float, ordered: bool = False) -> None:
        """`timeout` in seconds; with `ordered`, numbers are added in the order of ranks."""
        mpi = available("to train on several ranks")
        self._timeout = timeout
        self._world: Ranks = self
        self._alarm = mpi.COMM_WORLD.Dup()
        self.told: Callable[[int], object] | None = None
        self._join(mpi, mpi.COMM_WORLD, ordered=ordered)

    def _join(self, mpi: Any, own: Any, *, ordered: bool) -> None:
        """Be a rank of a communicator."""
        self._mpi, self.ordered = mpi, ordered
        self.rank, self.size = own.rank, own.size
        self._types = {np.dtype(np.float32): mpi.FLOAT, np.dtype(np.float64): mpi.DOUBLE}
        # Collectives are matched by their order on a communicator: each kind has one of its own.
        self._first, self._second, self._inside = (own.Dup() for _ in range(3))
        self._parts: list[Ranks] = []
        self._adding: list[_Ordered] = []

    def part(self, members: Sequence[int]) -> Ranks:
        """Some of these ranks; who waits for one of them asks all that were started."""
        own = self._first.Split(min(members), list(members).index(self.rank))
        made = object.__new__(Ranks)
        made._world, made._timeout = self._world, self._timeout
        made._join(self._mpi, own, ordered=self.ordered)
        own.Free()
        self._parts.append(made)
        return made

    def send(self, data: Array, to: int, tag: int) -> Pending:
        return _Request(self._inside.Isend([data, self._mpi.BYTE], to, tag))

    def receive(self, data: Array, of: int, tag: int) -> None:
        request = self._inside.Irecv([data, self._mpi.BYTE], of, tag)
        self._until(_Request(request).test)

    def add(self, array: Array) -> Pending:
        found = self._types.get(array.dtype)
        if self.ordered or found is None:
            return _Ordered(self._adding, self._mpi, self._first, self._second, array)
        return _Request(self._first.Iallreduce(self._mpi.IN_PLACE, [array, found]))

    def spread(self, data: Array, counts: Sequence[int], starts: Sequence[int]) -> Pending:
        where = [data, (list(counts), list(starts)), self._mpi.BYTE]
        return _Request(self._second.Iallgatherv(self._mpi.IN_PLACE, where))

    def wait(self, pending: Pending) -> None:
        self._until(pending.test)

    def gather(self, array: Array) -> Array:
        given = np.ascontiguousarray(array)
        made = np.empty((self.size, *array.shape), array.dtype)
        byte = self._mpi.BYTE
        request = self._second.Iallgather([given, byte], [made, byte])
        self._until(_Request(request).test)
        return made

    def exchange(self, array: Array, into: Array) -> None:
        byte = self._mpi.BYTE
        request = self._inside.Iallgather([np.ascontiguousarray(array), byte], [into, byte])
        self._until(_Request(request).test)

    def scatter(self, array: Array, counts: Sequence[int], own: Array, room: Array | None) -> None:
        """Sum arrays of all ranks, each receiving its own part."""
        mpi = self._mpi
        if room is None:
            kind = self._types[array.dtype]
            request = self._inside.Ireduce_scatter([array, kind], [own, kind], list(counts))
            self._until(_Request(request).test)
            return
        wide = array.dtype.itemsize
        sent = [count * wide for count in counts]
        starts = [sum(sent[:rank]) for rank in range(self.size)]
        came = [own.nbytes] * self.size, [own.nbytes * rank for rank in range(self.size)]
        request = self._inside.Ialltoallv(
            [array.view(np.uint8), (sent, starts), mpi.BYTE],
            [room.reshape(-1).view(np.uint8), came, mpi.BYTE],
        )
        self._until(_Request(request).test)
        added(room, own)

    def expose(self, array: Array) -> Window:
        return RowWindow(self._mpi, self._inside, array)

    def deliver(
        self, rows: Array, values: Array, cuts: Sequence[int], rooms: tuple[Array, Array]
    ) -> Iterator[tuple[Array, Array]]:
        """Send each rank its rows and values; return those received, in the order of ranks."""
        parts = [slice(*cuts[rank : rank + 2]) for rank in range(self.size)]
        others = [rank for rank in range(self.size) if rank != self.rank]
        byte, ranks = self._mpi.BYTE, self._inside
        sent = [
            ranks.Isend([_bytes(given[parts[rank]]), byte], rank, tag)
            for rank in others for tag, given in enumerate((rows, values))
        ]  # fmt: skip
        for rank, part in enumerate(parts):
            if rank == self.rank:
                yield rows[part], values[part]
                continue
            found = []
            for tag, room in enumerate(rooms):
                status = self._mpi.Status()
                request = ranks.Irecv([_bytes(room), byte], rank, tag)
                self._until(partial(request.Test, status))
                found.append(room[: status.Get_count(byte) // max(room[:1].nbytes, 1)])
            yield found[0], found[1]
        for request in sent:
            self._until(request.Test)

    def gather_bytes(self, data: bytes) -> list[bytes]:
        counts = self.gather(np.array(len(data), np.int64))
        starts = np.cumsum(counts) - counts
        given, made = np.frombuffer(data, np.uint8), np.empty(int(counts.sum()), np.uint8)
        byte = self._mpi.BYTE
        request = self._second.Iallgatherv([given, byte], [made, (counts, starts), byte])
        self._until(_Request(request).test)
        return [made[s : s + n].tobytes() for s, n in zip(starts, counts, strict=True)]

    def at(self, step: int) -> None:
        super().at(step)
        if self.told is not None:
            self.told(step)

    @property
    def where(self) -> str:
        """The step of this rank, for people."""
        return f"in step {self.step}" if self.step else "before the first step"

    def abort(self, code: int) -> Never:
        """End all ranks, this one too."""
        self._mpi.COMM_WORLD.Abort(code)
        os._exit(code)

    def close(self) -> None:
        """Leave together: every rank is done, also with work of its own."""
        self.gather(np.array(0))
        self._leave()
        self._alarm.Free()
        self._mpi.Finalize()

    def _leave(self) -> None:
        for part in self._parts:
            part._leave()  # noqa: SLF001 - of this class
        for each in (self._first, self._second, self._inside):
            each.Free()

    # ------------------------------------------------------------------ in time

    def _until(self, test: Callable[[], bool]) -> None:
        if not _comes(test, self._timeout):
            world = self._world
            raise Lost(world._said(world._silent()))  # noqa: SLF001 - of this class

    def _silent(self) -> list[int]:
        """The ranks that send no alarm, not waiting as this one does."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        word, heard = np.zeros(1, np.uint8), np.empty((self.size, 1), np.uint8)
        sent = [self._alarm.Isend(word, other) for other in others]
        waiting = {other: self._alarm.Irecv(heard[other], other) for other in others}

        def all_came() -> bool:
            for other in [o for o, request in waiting.items() if request.Test()]:
                del waiting[other]
            return not waiting

        _comes(all_came, ASKED)
        del sent
        return list(waiting)

    def _said(self, silent: list[int]) -> str:
        who = f"rank {some([str(r) for r in silent])}" if silent else "a message"
        return (
            f"{who} did not come within {self._timeout:g} s, {self.where}: go on from the last "
            "checkpoint with --resume"
        )


class _Request:
    """A request of MPI."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def test(self) -> bool:
        return bool(self._request.Test())


class _Ordered:
    """A sum whose terms are added in the order of ranks, whatever the engine does.

    Each rank is sent its part by all, adds it up, narrow floats in float32, and sends it to all:
    as many bytes as a sum by rings takes.  Stages of several sums come in their order.
    """

    def __init__(
        self, queue: list[_Ordered], mpi: Any, first: Any, second: Any, array: Array
    ) -> None:
        self._queue, self._mpi, self._second, self._array = queue, mpi, second, array
        self._flat = array.view(np.uint8)
        wide, size = array.dtype.itemsize, first.size
        parts = [share(array.size, rank, size) for rank in range(size)]
        self._counts = [(p.stop - p.start) * wide for p in parts]
        self._starts = [p.start * wide for p in parts]
        self._mine = parts[first.rank]
        own = self._counts[first.rank]
        self._came = np.empty((size, own), np.uint8)
        arriving = [own] * size, [own * rank for rank in range(size)]
        leaving = self._counts, self._starts
        self._request = first.Ialltoallv(
            [self._flat, leaving, mpi.BYTE], [self._came, arriving, mpi.BYTE]
        )
        queue.append(self)

    def test(self) -> bool:
        """Bring forward requests begun before, then this one."""
        for each in list(self._queue):
            if not each._request.Test():  # noqa: SLF001 - another of this class
                break
            each._add_up()  # noqa: SLF001 - as well
            self._queue.remove(each)
        return self not in self._queue and bool(self._request.Test())

    def _add_up(self) -> None:
        added(self._came.view(self._array.dtype), self._array[self._mine])
        kept = self._counts, self._starts
        self._request = self._second.Iallgatherv(
            self._mpi.IN_PLACE, [self._flat, kept, self._mpi.BYTE]
        )


def _bytes(array: Array) -> Array:
    """An array as it lies in memory."""
    return array.reshape(-1).view(np.uint8)


def added(terms: Array, into: Array) -> None:
    """Add up the terms of all ranks in their order, narrow floats in float32, a block at a time."""
    dtype = into.dtype
    wide = np.promote_types(dtype, np.float32) if dtype.itemsize < 4 else dtype
    with np.errstate(all="ignore"):  # between values lies anything
        for start in range(0, into.size, BLOCK):
            block = slice(start, start + BLOCK)
            found = terms[0, block].astype(wide)
            for term in terms[1:]:
                found += term[block].astype(wide, copy=False)
            into[block] = found.astype(dtype, copy=False)


def _comes(test: Callable[[], bool], seconds: float) -> bool:
    """Whether something happens in time; a core that others need is left to them."""
    for _ in range(SPINS):
        if test():
            return True
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE)
    return True
