"""A walk in the native library: step by step what `descent` says in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gradtool.native import library
from gradtool.native import walk as native
from gradtool.native.call import Call, Signature
from gradtool.planning.flow import Integers
from gradtool.planning.ladder.descent import PythonWalk
from gradtool.planning.ladder.line import room
from gradtool.planning.ladder.passing import Passing
from gradtool.planning.ladder.walk import Descent, Walk
from gradtool.planning.search.cost_model import CostModel

_LIMIT = 2**62
_HEAVIEST = 64  # weights, which grow with each step in vain, stay below: see `rungs`
_UNLIMITED = 2**63 - 1
_SLACK = 1_024  # entries that one change puts in, and more
_COUNT, _EXTRA, _LEFT, _ANSWER, _IDLE = map(native.STAND.index, native.SAID)


def walk_of(work: CostModel) -> Walk:
    """A walk at the order without recompute: native, where the library is there and sums fit."""
    return NativeWalk(work) if library.is_available() and _fits(work) else PythonWalk(work)


def _fits(work: CostModel) -> bool:
    """Whether sums of bytes and of costs stay far from 64 bits, however much runs again."""
    most = room(work, range(len(work.reads)))
    live = work.simulator.fixed + sum(work.bytes.values()) + max(work.beside, default=0)
    return most * max(_HEAVIEST * live, *map(abs, work.costs), 1) < _LIMIT


class NativeWalk(Walk):
    """A walk on a line of the native library.  Storages are numbered without gaps there."""

    def __init__(self, work: CostModel, instructions: str | None = None) -> None:
        self.work = work
        self._instructions = instructions
        self._storages = sorted(work.maker)
        self._number = {r: i for i, r in enumerate(self._storages)}
        self._tables = {**self._of_steps(), **self._of_storages()}
        self._now = np.zeros(len(native.STAND), dtype=np.int64)
        self._room = 0
        self._calls: dict[str, tuple[Any, Call]] = {}
        self.load(range(len(work.reads)))

    # ----------------------------------------------------------------------- said

    @property
    def left(self) -> int:
        return int(self._now[_LEFT])

    @left.setter
    def left(self, entries: int) -> None:
        self._now[_LEFT] = entries

    @property
    def peak(self) -> int:
        return int(self.profile.max(initial=self.work.simulator.fixed))

    @property
    def extra(self) -> int:
        return int(self._now[_EXTRA])

    @property
    def places(self) -> list[int]:
        found: list[int] = self._memory["place"][: self._now[_COUNT]].tolist()
        return found

    @property
    def profile(self) -> Integers:
        return self._memory["alive"][: self._now[_COUNT]]

    # ----------------------------------------------------------------------- done

    def load(self, places: Sequence[int]) -> None:
        most = room(self.work, places)
        if most > self._room:
            self._grow(most)
        self._line.room = most
        self._now[_COUNT] = len(places)
        self._memory["place"][: len(places)] = places
        self._call(native.LOAD)

    def fit(self, budget: int, how: Descent = Descent()) -> bool:  # noqa: B008 - frozen
        worth = _UNLIMITED if how.worth is None else how.worth
        self._call(native.FIT, budget=budget, **how._replace(worth=worth)._asdict())
        return bool(self._now[_ANSWER])

    def trim(self, budget: int) -> None:
        self._call(native.TRIM, budget=budget)

    def find_idle(self, number: int) -> int:
        self._call(native.IDLE, number=number, count=0)
        return int(self._now[_IDLE])

    def rerun_idle(self, number: int, budget: int) -> None:
        self._call(native.RERUN_IDLE, root=number, room=budget)

    def leave_out(self, number: int, count: int) -> None:
        self._call(native.LEAVE_OUT, number=number, count=count)

    def _call(self, kernel: Signature, **numbers: int) -> None:
        """Call a kernel, which is bound once for each line: searches make many short calls."""
        if kernel.name not in self._calls:
            call = kernel.bind(self._instructions, line=ctypes.addressof(self._line), **numbers)
            self._calls[kernel.name] = call.steps[0][1], call
        words, call = self._calls[kernel.name]
        for name, number in numbers.items():
            setattr(words, name, number)
        call.run()

    # --------------------------------------------------------------------- memory

    def _grow(self, most: int) -> None:
        """Lay out a line that has room for so many links."""
        self._room, self._memory = most, self._made(most)
        self._line = native.LINE.words(
            **{k: v.ctypes.data for k, v in (*self._tables.items(), *self._memory.items())},
            now=self._now.ctypes.data, steps=len(self.work.reads), storages=len(self._storages),
            room=most, fixed=self.work.simulator.fixed, total=self.work.total,
        )  # fmt: skip
        self._calls.clear()

    def _of_steps(self) -> dict[str, Integers]:
        work, passing = self.work, Passing(self.work)
        steps = range(len(work.reads))
        dear = {c: i for i, c in enumerate(sorted(set(work.costs), reverse=True))}
        numbers: dict[str, Iterable[int]] = {
            "targets": [self._number.get(r, -1) for r in work.targets],
            "costs": work.costs, "rank": [dear[c] for c in work.costs], "links": work.links,
            "staying": work.staying, "beside": work.beside, "is_result": work.is_result,
            "is_random": [p in passing.random for p in steps],
        }  # fmt: skip
        several = {
            name: [[self._number[r] for r in roots] for roots in getattr(work, name)]
            for name in ("reads", "writes", "fleeting", "donates")
        }
        several["apart"] = [sorted(passing.apart.get(p, ())) for p in steps]
        made = {name: _integers(each) for name, each in numbers.items()}
        for name, rows in several.items():
            made[name] = _integers(n for row in rows for n in row)
            made[f"{name}_at"] = _integers(np.cumsum([0, *map(len, rows)]).tolist())
        return made

    def _of_storages(self) -> dict[str, Integers]:
        work, roots = self.work, self._storages
        numbers: dict[str, Iterable[int]] = {
            "maker": [work.maker[r] for r in roots],
            "bytes": [work.bytes[r] for r in roots],
            "stays": [r in work.live_out for r in roots],
            "is_read": [r in work.simulator.read for r in roots],
            "may_drop": [work.may_drop(r) for r in roots],
            "drops": [work.may_drop(r) and work.bytes[r] > 0 for r in roots],
            "made": [self._number[r] for r in work.maker],
        }
        return {name: _integers(each) for name, each in numbers.items()}

    def _made(self, most: int) -> dict[str, Integers]:
        """What a line is kept in that has room for so many links."""
        steps, storages = len(self.work.reads), len(self._storages)
        lists, widest = steps + storages, max(map(len, self.work.fleeting), default=0)
        entry, item, entries = native.ENTRY, native.ITEM, most + _SLACK
        words = {
            "entries": entry * entries, "entries_before": entry * entries,
            "place": entries, "alive": entries, "saved": entries,
            "place_before": entries, "alive_before": entries, "saved_before": entries,
            "node": entry * entries, "next": entries, "heads": lists, "tails": entry * lists,
            "log": native.CHANGE * 2 * entries, "dirty": entry * 4 * entries,
            "dead": entry * entries, "weights": steps, "over": entries, "above": entries,
            "passed": entry * 2 * widest, "idle": item * storages,
            "seeming": item * max(storages, entries),
        }  # fmt: skip
        memory = {name: np.empty(count, dtype=np.int64) for name, count in words.items()}
        return {**memory, "marks": self._marks}

    @property
    def _marks(self) -> Integers:
        return np.zeros(max(len(self.work.reads), len(self._storages)), dtype=np.int64)


def _integers(numbers: Iterable[Any]) -> Integers:
    return np.array(list(numbers), dtype=np.int64)
