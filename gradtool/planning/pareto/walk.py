"""A schedule on its way down to a budget, whose changes native/kernels/walk.c makes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtool.errors import UsageError
from gradtool.native import walk as native
from gradtool.native.call import Call, Signature
from gradtool.planning.flow import Integers
from gradtool.planning.search.cost_model import CostModel
from gradtool.program.donation import write_after_read

TRIALS = 16
_GROWTH = 2  # a line has room for so many times what it and the order without recompute link
_LIMIT = 2**62  # of the costs of all runs that a line has room for
_MOST = 2**56  # bytes that an entry above the budget may weigh 64 times
_COUNTED = 64  # steps whose costs are added up before any of them runs
_UNLIMITED = 2**63 - 1
_SLACK = 1_024  # entries that one change puts in, and more
_COUNT, _EXTRA, _LEFT, _ANSWER, _IDLE = map(native.STAND.index, native.SAID)


class Descent(NamedTuple):
    """The stopping rule of a descent.

    It ends where nothing helps, more than `patience` times, or it would cost `worth` or more; of
    changes that help, so many `trials` are compared.  With `ends`, all readers of a storage may go
    before the last step that touches it.
    """

    worth: int | None = None
    patience: int = 0
    trials: int = TRIALS
    ends: bool = False


class State(NamedTuple):
    """A schedule: its peak in bytes, its extra work, the places of its steps."""

    peak: int
    extra: int
    places: tuple[int, ...]


def room(work: CostModel, places: Sequence[int]) -> int:
    """The number of links reserved for a line that begins as a schedule; see `CostModel.links`."""
    return _GROWTH * (sum(work.links) + sum(map(work.links.__getitem__, places)))


class Walk:
    """A schedule under change; it begins at the order without recompute.

    `left` are the entries that may still be looked at.  Storages are numbered without gaps in the
    library, and costs are counted in a `unit` of which it can add up as many as there may be.
    """

    def __init__(self, work: CostModel) -> None:
        """Lay out the line. Raises UsageError if the storages take 2^56 bytes or more."""
        held = work.simulator.fixed + sum(work.bytes.values()) + max(work.beside, default=0)
        if held >= _MOST:
            raise UsageError(f"values take {held} bytes in all: no machine has as many")
        self.work = work
        base = range(len(work.reads))
        dearest = max(map(abs, work.costs), default=0)
        self.unit = 1 + dearest * max(room(work, base), _COUNTED) // _LIMIT
        self._storages = sorted(work.maker)
        self._number = {r: i for i, r in enumerate(self._storages)}
        self._tables = {**self._of_steps(), **self._of_storages()}
        self._now = np.zeros(len(native.STAND), dtype=np.int64)
        self._room = 0
        self._calls: dict[str, tuple[Any, Call]] = {}
        self.load(base)

    # ----------------------------------------------------------------------- said

    @property
    def left(self) -> int:
        """Entries left to look at."""
        return int(self._now[_LEFT])

    @left.setter
    def left(self, entries: int) -> None:
        self._now[_LEFT] = entries

    @property
    def peak(self) -> int:
        """The most bytes alive at once."""
        return int(self.profile.max(initial=self.work.simulator.fixed))

    @property
    def extra(self) -> int:
        """The cost of all runs but one of every step."""
        return int(self._now[_EXTRA]) if self.unit == 1 else self.work.work_again(self.places)

    @property
    def places(self) -> list[int]:
        """The steps in running order."""
        found: list[int] = self._memory["place"][: self._now[_COUNT]].tolist()
        return found

    @property
    def profile(self) -> Integers:
        """Bytes alive at each entry."""
        return self._memory["alive"][: self._now[_COUNT]]

    @property
    def state(self) -> State:
        """The current schedule."""
        return State(self.peak, self.extra, tuple(self.places))

    # ----------------------------------------------------------------------- done

    def load(self, places: Sequence[int]) -> None:
        """Begin anew at a schedule."""
        most = room(self.work, places)
        if most > self._room:
            self._grow(most)
        self._line.room = most
        self._now[_COUNT] = len(places)
        self._memory["place"][: len(places)] = places
        self._call(native.LOAD)

    def go(self, state: State) -> None:
        """Begin again at a schedule."""
        if tuple(self.places) != state.places:
            self.load(state.places)

    def weighed(self, places: Sequence[int]) -> State:
        """A schedule known from elsewhere."""
        self.load(places)
        return self.state

    def fit(self, budget: int, how: Descent = Descent()) -> bool:  # noqa: B008 - frozen
        """Run steps again until the budget holds, each time the cheapest per byte of excess gone.

        False if a descent ends before.
        """
        worth = _UNLIMITED if how.worth is None else -(-how.worth // self.unit)
        self._call(native.FIT, budget=budget, **how._replace(worth=worth)._asdict())
        return bool(self._now[_ANSWER])

    def trim(self, budget: int) -> None:
        """Drop recomputation that the budget has room to avoid, the dearest first."""
        self._call(native.TRIM, budget=budget)

    def find_idle(self, number: int) -> int:
        """Count storages alive over an entry and not touched there."""
        self._call(native.IDLE, number=number, count=0)
        return int(self._now[_IDLE])

    def rerun_idle(self, number: int, budget: int) -> None:
        """Recompute one of the idle storages for its next use; nothing changes if impossible."""
        self._call(native.RERUN_IDLE, root=number, room=budget)

    def leave_out(self, number: int, count: int) -> None:
        """Leave out some consecutive repeats, from one number on."""
        self._call(native.LEAVE_OUT, number=number, count=count)

    def _call(self, kernel: Signature, **numbers: int) -> None:
        """Call a kernel, which is bound once for each line: searches make many short calls."""
        if kernel.name not in self._calls:
            call = kernel.bind(line=ctypes.addressof(self._line), **numbers)
            self._calls[kernel.name] = call.words, call
        words, call = self._calls[kernel.name]
        for name, number in numbers.items():
            words[kernel.names[name]] = number
        call.run()

    # --------------------------------------------------------------------- memory

    def _grow(self, most: int) -> None:
        """Lay out a line with room for so many links."""
        self._room, self._memory = most, self._made(most)
        self._line = native.LINE.words(
            **{k: v.ctypes.data for k, v in (*self._tables.items(), *self._memory.items())},
            now=self._now.ctypes.data, steps=len(self.work.reads), storages=len(self._storages),
            room=most, fixed=self.work.simulator.fixed, total=int(self._tables["costs"].sum()),
        )  # fmt: skip
        self._calls.clear()

    def _of_steps(self) -> dict[str, Integers]:
        work, program = self.work, self.work.program
        dear = {c: i for i, c in enumerate(sorted(set(work.costs), reverse=True))}
        numbers: dict[str, Iterable[int]] = {
            "targets": [self._number.get(r, -1) for r in work.targets],
            "costs": [c // self.unit for c in work.costs], "rank": [dear[c] for c in work.costs],
            "links": work.links, "staying": work.staying, "beside": work.beside,
            "is_result": work.is_result,
            "is_random": [not program.steps[s].recomputable for s in work.order],
        }  # fmt: skip
        several = {
            name: [[self._number[r] for r in roots] for roots in getattr(work, name)]
            for name in ("reads", "writes", "fleeting", "donates")
        }
        several["apart"] = self._apart()
        made = {name: _integers(each) for name, each in numbers.items()}
        for name, rows in several.items():
            made[name] = _integers(n for row in rows for n in row)
            made[f"{name}_at"] = _integers(np.cumsum([0, *map(len, rows)]).tolist())
        return made

    def _apart(self) -> list[list[int]]:
        """By place, the steps that never pass its own: writes after reads of one storage."""
        place = {step: p for p, step in enumerate(self.work.order)}
        apart: list[set[int]] = [set() for _ in place]
        for one, other in write_after_read(self.work.program):
            apart[place[one]].add(place[other])
            apart[place[other]].add(place[one])
        return [sorted(each) for each in apart]

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
        """The memory of a line with room for so many links."""
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
        return {**memory, "marks": np.zeros(max(steps, storages), dtype=np.int64)}


def _integers(numbers: Iterable[Any]) -> Integers:
    return np.array(list(numbers), dtype=np.int64)
