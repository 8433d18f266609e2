"""Ranks that are forks of this process, to try what ranks do where there is no MPI."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from contextlib import suppress
from itertools import pairwise
from multiprocessing import Pipe
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

from gradtool.ranks.group import Done, Group, Window

with suppress(ImportError):  # Windows has none, and forks nothing
    import fcntl

PATIENCE = 60  # seconds
supported = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="forks processes")


class Forked(Group):
    """One of some ranks, over pipes between all; what is summed is noted in `begun`.

    `members` are the ranks among all of which this group is; `pipes[a][b]` has the end at `a` of
    the pipe between the two, for what is done together, and one for what is sent.
    """

    def __init__(self, rank, pipes, members=None):
        self._members = list(range(len(pipes)) if members is None else members)
        self.rank, self.size = self._members.index(rank), len(self._members)
        self._own, self._pipes = rank, pipes
        self.begun, self.sent = [], []

    def part(self, members):
        chosen = [self._members[member] for member in members]
        return Forked(self._own, self._pipes, chosen)

    def send(self, data, to, tag):
        self.sent.append((to, tag, data.size))
        self._pipes[self._own][self._members[to]][1].send((tag, data.tobytes()))
        return Done()

    def receive(self, data, of, tag):
        came, found = _received(self._pipes[self._own][self._members[of]][1])
        assert came == tag
        assert len(found) == data.size
        data[:] = np.frombuffer(found, np.uint8)

    def add(self, array):
        self.begun.append((str(array.dtype), array.size))
        with np.errstate(all="ignore"):
            array[:] = sum(each.astype(np.float64) for each in self._all(array))
        return Done()

    def spread(self, data, counts, starts):
        mine = slice(starts[self.rank], starts[self.rank] + counts[self.rank])
        for start, each in zip(starts, self._all(data[mine].tobytes()), strict=True):
            data[start : start + len(each)] = np.frombuffer(each, np.uint8)
        return Done()

    def gather(self, array):
        return np.stack(self._all(array))

    def exchange(self, array, into):
        into[:] = np.stack(self._all(array))

    def scatter(self, array, counts, own, room):
        assert sum(counts) == array.size
        assert room is None or room.shape == (self.size, own.size)
        with np.errstate(all="ignore"):
            total = sum(each.astype(np.float64) for each in self._all(array))
        own[:] = total[sum(counts[: self.rank]) :][: counts[self.rank]]

    def expose(self, array):
        (folder, *_) = self._all(mkdtemp(dir=os.environ.get("TMPDIR")) if not self.rank else None)
        shapes = self._all(array.shape)
        return Mirrored(self, array, Path(folder), shapes)

    def deliver(self, rows, values, cuts, rooms):
        assert rooms[0].shape[0] >= len(rows)
        sent = [(rows[a:b].copy(), values[a:b].copy()) for a, b in pairwise(cuts)]
        for each in self._all(sent):
            yield each[self.rank]

    def gather_bytes(self, data):
        return self._all(data)

    def _all(self, given):
        first, *others = self._members
        if self._own != first:
            mine = self._pipes[self._own][first][0]
            mine.send(given)
            return _received(mine)
        ends = [self._pipes[first][other][0] for other in others]
        found = [given, *map(_received, ends)]
        for end in ends:
            end.send(found)
        return found


class Mirrored(Window):
    """Rows of ranks in files that all map: one of values to read, one of what is to be added."""

    def __init__(self, group, own, folder, shapes):
        super().__init__(own)
        self._rank, self._folder = group.rank, folder
        (folder / f"lock{group.rank}").touch()
        made = [self._mapped(group.rank, what, own.shape, "w+") for what in ("read", "add")]
        made[0][:] = own
        group.gather(np.array(0))
        self._files = [
            [self._mapped(rank, what, shape, "r+") for rank, shape in enumerate(shapes)]
            for what in ("read", "add")
        ]
        self._locks = [(folder / f"lock{rank}").open("w") for rank in range(group.size)]
        group.gather(np.array(0))
        shutil.rmtree(folder, ignore_errors=True)

    def _mapped(self, rank, what, shape, mode):
        return np.memmap(self._folder / f"{what}{rank}", self.own.dtype, mode, shape=shape)

    def read(self, rank, rows, into):
        into[:] = self._files[0][rank][rows]
        return Done()

    def add(self, rank, rows, values, *, largest=False):
        held = self._files[1][rank]
        fcntl.flock(self._locks[rank], fcntl.LOCK_EX)
        held[rows] = (np.maximum if largest else np.add)(held[rows], values)
        fcntl.flock(self._locks[rank], fcntl.LOCK_UN)
        return Done()

    def publish(self):
        self._files[0][self._rank][:] = self.own

    def collect(self):
        mine = self._files[1][self._rank]
        self.own += mine
        mine[:] = 0


def _received(end):
    if not end.poll(PATIENCE):
        raise TimeoutError("a rank does not answer")
    return end.recv()


def _connected(size):
    """Ends of pipes between all ranks, by the rank that has it and the one at the other end."""
    pipes = [[None] * size for _ in range(size)]
    for a in range(size):
        for b in range(a):
            both = [Pipe() for _ in range(2)]
            pipes[a][b] = [one for one, _ in both]
            pipes[b][a] = [other for _, other in both]
    return pipes


def on_ranks(size, work):
    """What `work(group)` returns on each of some ranks, in their order; or what it raises."""
    pipes = _connected(size)
    children = []
    for rank in range(size):
        result, end = Pipe(duplex=False)
        child = os.fork()
        if child == 0:
            _run(work, Forked(rank, pipes), end)
        end.close()
        children.append((child, result))
    outcomes = []
    for child, result in children:
        with result:
            outcomes.append(result.recv() if result.poll(PATIENCE) else TimeoutError("hangs"))
        os.waitpid(child, 0)
    for pair in (pair for row in pipes for pair in row if pair):
        for each in pair:
            each.close()
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def _run(work, group, end):
    try:
        try:
            outcome = work(group)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            outcome = error
        end.send_bytes(pickle.dumps(outcome))
    finally:
        os._exit(0)
