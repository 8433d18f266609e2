"""Collective operations of ranks as one small class; alone, they do nothing.

A rank is a process.  All of them make the same calls in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from gradtool.errors import GradtoolError

Array = np.ndarray[Any, Any]


class Lost(GradtoolError):
    """Ranks do not answer any more."""


class Pending(Protocol):
    """An operation in progress beside the work of a rank."""

    def test(self) -> bool:
        """Bring it forward; whether it is done."""


class Done:
    """Nothing was to be done."""

    def test(self) -> bool:
        """It is done."""
        return True


class Window:
    """The rows of an array `[rows, …]` on each rank, for reads and sums by any rank.

    The owners of rows need not take part.
    """

    def __init__(self, own: Array) -> None:
        self.own = own

    def read(self, rank: int, rows: Array, into: Array) -> Pending:
        """Begin to copy rows of a rank, `[n]`, into `[n, …]`."""
        del rank
        np.take(self.own, rows, axis=0, out=into)
        return Done()

    def add(self, rank: int, rows: Array, values: Array, *, largest: bool = False) -> Pending:
        """Begin to add to different rows of a rank, `[n]`, in no order with additions of others.

        Or to leave the larger value there.
        """
        del rank
        self.own[rows] = (np.maximum if largest else np.add)(self.own[rows], values)
        return Done()

    def publish(self) -> None:
        """Let others read this rank's changes; they do when all have met after it."""

    def flush(self) -> None:
        """Return when all additions of this rank are there."""

    def collect(self) -> None:
        """See the additions of others, when all have met after they flushed them."""

    def close(self) -> None:
        """End it, all ranks together."""


class Group:
    """Rank `rank` of `size`; this one is a process of its own.

    `windows` are open, by their tables; `step` is the one that training is in.
    """

    rank = 0
    size = 1
    step = 0
    windows: Mapping[str, Window] = MappingProxyType({})
    ordered = False  # whether numbers are added in the order of ranks, whatever an engine does

    def add(self, array: Array) -> Pending:
        """Begin to sum a flat array over all ranks, in place; it is not touched until that is done.

        Every rank has the same bits then.
        """
        del array
        return Done()

    def wait(self, pending: Pending) -> None:
        """Return when something is done.

        Raises:
            Lost: some rank has not come to the same place in time.
        """
        del pending

    def spread(self, data: Array, counts: Sequence[int], starts: Sequence[int]) -> Pending:
        """Begin to gather the bytes of all ranks on all; not touched until that is done.

        Rank r has `counts[r]` of them, from `starts[r]` on, and in the end all ranks have all.
        """
        del data, counts, starts
        return Done()

    def gather(self, array: Array) -> Array:
        """The arrays of all ranks, of one shape and type: `[size, *shape]`, in order of rank."""
        return array[np.newaxis]

    def exchange(self, array: Array, into: Array) -> None:
        """The arrays of all ranks, `[size, *shape]`, among the nodes of a step.

        Other ranks may be in the midst of sums that go on beside them.
        """
        into[:] = array

    def scatter(self, array: Array, counts: Sequence[int], own: Array, room: Array | None) -> None:
        """Reduce-scatter flat arrays over all ranks, among the nodes of a step.

        Rank r has `counts[r]` elements, in order.  With `room`, `[size, *own]`, they are added up
        in the order of ranks there.
        """
        del counts, room
        own[:] = array

    def expose(self, array: Array) -> Window:
        """Let all ranks read rows of an array in place; all do it together."""
        return Window(array)

    def deliver(
        self, rows: Array, values: Array, cuts: Sequence[int], rooms: tuple[Array, Array]
    ) -> Iterator[tuple[Array, Array]]:
        """Send rank r the rows from `cuts[r]` to `cuts[r + 1]`, among the nodes of a step.

        Rows are `[n]`, values `[n, …]`.  Messages of all ranks come in order of rank, in `rooms`
        with place for the largest; the next overwrites it.
        """
        del rooms
        yield rows[cuts[0] : cuts[1]], values[cuts[0] : cuts[1]]

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """The bytes of every rank, in order of rank."""
        return [data]

    def send(self, data: Array, to: int, tag: int) -> Pending:
        """Begin to send bytes to another rank; they are not touched until that is done.

        Messages between two ranks under one `tag` keep their order.
        """
        raise NotImplementedError("a rank alone has nobody to send to")

    def receive(self, data: Array, of: int, tag: int) -> None:
        """Return the bytes sent by another rank. Raises Lost if it has not in time."""
        raise NotImplementedError("a rank alone has nobody to receive from")

    def part(self, members: Sequence[int]) -> Group:
        """Some of these ranks, this one too, as a group of their own: in the order given.

        Every rank asks for one at the same time, whatever its members are.
        """
        del members
        return self

    def at(self, step: int) -> None:
        """Begin a step of training: losses of ranks from now on are in it."""
        self.step = step


ALONE = Group()


def share(count: int, rank: int, size: int) -> slice:
    """A rank's part of `count` things: all parts differ by one at most."""
    return slice(count * rank // size, count * (rank + 1) // size)


def total(group: Group, number: float) -> float:
    """The sum of a number over all ranks, in their order; the same bits everywhere."""
    return math.fsum(group.gather(np.array(number, np.float64)))


def anywhere(group: Group, given: bool) -> bool:  # noqa: FBT001 - the value reduced
    """Whether something holds on any rank."""
    return bool(group.gather(np.array(given)).any())
