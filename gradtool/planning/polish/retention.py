"""The contents of a window of a schedule as a constraint programme, solved by OR-tools' CP-SAT.

A run of a step is an optional interval of one slot, no two of which overlap; a storage that it
makes is held for an optional interval from that slot to its last read.  Every read finds such an
interval; those of one storage do not overlap, as the latest instance is read.  What is held and the
workspace of what runs never exceed the room.

Source: retention intervals, their number per value and the cumulative row are those of Moccasin
(Bartan et al. 2023, arXiv:2304.14463), §2.  Unlike there, first runs are in no given order, what
was computed before the window is held for as long as the window likes, and an output may begin
where an input ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from gradtool.planning.polish.window import Surroundings, Window

_SPREAD = 2  # slots for each step that runs now: room for another beside it


class _Run(NamedTuple):
    """A run of a step: whether there is one, its slot, and the slot that it has now if it runs."""

    there: Any
    slot: Any
    now: int | None


class _Held(NamedTuple):
    """An instance of a storage: whether it is held, up to and without which slot, who makes it.

    `now` is where it ends now, None where it is not held; nobody makes what comes in.
    """

    there: Any
    end: Any
    run: _Run | None
    now: int | None


class Retention:
    """The programme of a window, with what runs there now as a hint."""

    def __init__(self, around: Surroundings, window: Window) -> None:
        from ortools.sat.python import cp_model

        self.around, self.window, self.simulator = around, window, around.simulator
        self.model: Any = cp_model.CpModel()
        self.slots = _SPREAD * len(window.steps)
        self.demands: list[tuple[Any, int]] = []
        self.runs = {s: list(self._runs(s, count)) for s, count in window.runs.items()}
        self.held = {r: [self._coming(r, last)] for r, last in window.entering.items()}
        for step in self.runs:
            for root in self.simulator.writes[step]:
                self._hold(step, root)
        for step, runs in self.runs.items():
            for run in runs:
                self._weigh(step, run, self._read(step, run))
        for root, instances in self.held.items():
            self._apart(root, instances)
        for root in window.owed:
            self._owe(root)
        for one, other in window.before:
            self.model.add(self.runs[one][-1].slot < self.runs[other][0].slot)
        unit = [self._interval(r.slot, 1, r.there, r.now) for s in self.runs.values() for r in s]
        self.model.add_no_overlap(unit)

    def _literal(self, *, now: bool) -> Any:
        literal = self.model.new_bool_var("")
        self.model.add_hint(literal, now)
        return literal

    def _number(self, now: int) -> Any:
        number = self.model.new_int_var(0, self.slots, "")
        self.model.add_hint(number, now)
        return number

    def _slot(self, position: int) -> int:
        """The slot of what runs at a position now; the last one for what runs after the window."""
        return min(_SPREAD * (position - self.window.begin) + 1, self.slots - 1)

    def _runs(self, step: int, count: int) -> Iterator[_Run]:
        """The runs of a step in order."""
        window, model = self.window, self.model
        positions = (p for p, s in enumerate(window.steps, window.begin) if s == step)
        now: list[int | None] = [self._slot(p) for p in positions]
        now += [None] * (count - len(now))
        before: _Run | None = None
        for k in range(count):
            must = not self.around.may_repeat(step) or (k == 0 and self._is_due(step)) or step in window.frozen
            there = model.new_constant(1) if must else self._literal(now=now[k] is not None)
            slot = model.new_constant(now[k]) if step in window.frozen else self._number(now[k] or 0)
            run = _Run(there, slot, now[k])
            model.add(run.slot < self.slots)
            if before is not None:
                model.add_implication(there, before.there)
                model.add(before.slot < run.slot).only_enforce_if(there)
            yield run
            before = run

    def _is_due(self, step: int) -> bool:
        """Whether a step has a result and has not run before."""
        writes = self.simulator.writes[step]
        is_result = not self.simulator.pinned.isdisjoint(writes)
        return step in self.window.first and (is_result or self.simulator.read.isdisjoint(writes))

    def _coming(self, root: int, last: int) -> _Held:
        """A storage that comes in, which is read at position `last` last."""
        held = _Held(self.model.new_constant(1), self._number(now := self._slot(last) + 1), None, now)
        self._demand(root, 0, held, 0)
        return held

    def _hold(self, step: int, root: int) -> None:
        """The instances of a storage that the window makes."""
        model, instances = self.model, self.held.setdefault(root, [])
        if root in self.simulator.pinned:
            if step in self.window.first:
                run = self.runs[step][0]
                end = model.new_constant(self.slots)
                instances.append(_Held(run.there, end, run, self.slots))
            return
        positions = iter(p for p, s in enumerate(self.window.steps, self.window.begin) if s == step)
        for run in self.runs[step]:
            if root not in self.simulator.read:
                end = self._number((run.now or 0) + 1)
                model.add(end == run.slot + 1)
                instances.append(_Held(run.there, end, run, (run.now or 0) + 1))
                continue
            last = self.around.last.get((root, next(positions, -1)))
            now = None if last is None else self._slot(last) + 1
            there = self._literal(now=now is not None)
            end = self._number(now or 0)
            model.add_implication(there, run.there)
            model.add(end > run.slot).only_enforce_if(there)
            instances.append(_Held(there, end, run, now))

    def _read(self, step: int, run: _Run) -> Any:
        """A run finds what it reads; whether it may write over something that it reads last."""
        takes = self.simulator.takes[step]
        dying: list[tuple[Any, bool]] = []
        for root in self.simulator.reads[step]:
            if root in self.window.settled:
                continue
            covers = []
            source = self._source(root, run)
            for held in self.held.get(root, []):
                cover = self._literal(now=held is source)
                self.model.add_implication(cover, held.there)
                self.model.add(held.end > run.slot).only_enforce_if(cover)
                if held.run is not None:
                    self.model.add(held.run.slot < run.slot).only_enforce_if(cover)
                covers.append(cover)
                if root in takes:
                    ends = held is source and run.now is not None and held.now == run.now + 1
                    dies = self._literal(now=ends)
                    self.model.add_implication(dies, cover)
                    self.model.add(held.end == run.slot + 1).only_enforce_if(dies)
                    dying.append((dies, ends))
            self.model.add_bool_or([*covers, run.there.negated()])
        if not dying:
            return None
        over = self._literal(now=(now := any(ends for _, ends in dying)))
        self.model.add_bool_or([*(dies for dies, _ in dying), over.negated()])
        return over, int(now)

    def _source(self, root: int, run: _Run) -> _Held | None:
        """The instance that a run reads now."""
        if run.now is None:
            return None
        makers = [h for h in self.held.get(root, []) if h.now is not None]
        return next(
            (h for h in reversed(makers) if h.run is None or (h.run.now or 0) < run.now), None
        )

    def _weigh(self, step: int, run: _Run, over: Any) -> None:
        """Count what a run makes, from its slot on or right behind it, and its workspace."""
        for root in self.simulator.writes[step]:
            shifted, now = (0, 0)
            if over is not None and root == self.simulator.writes[step][0]:
                shifted, now = over
            for held in self.held[root]:
                if held.run is run:
                    self._demand(root, run.slot + shifted, held, (run.now or 0) + now)
        if self.simulator.work[step]:
            interval = self._interval(run.slot, 1, run.there, run.now)
            self.demands.append((interval, self.simulator.work[step]))

    def _demand(self, root: int, begin: Any, held: _Held, now: int) -> None:
        """Count the bytes of an instance from a slot on."""
        if not self.simulator.bytes[root]:
            return
        length = self._number((held.now or now) - now)
        interval = self.model.new_optional_interval_var(begin, length, held.end, held.there, "")
        self.demands.append((interval, self.simulator.bytes[root]))

    def _interval(self, begin: Any, length: int, there: Any, _now: int | None) -> Any:
        return self.model.new_optional_fixed_size_interval_var(begin, length, there, "")

    def _apart(self, root: int, instances: list[_Held]) -> None:
        """An instance is held no longer than until the step runs again."""
        runs = self.runs.get(self.around.maker[root], [])
        for held in instances:
            if root in self.simulator.pinned or root not in self.simulator.read:
                continue
            after = 0 if held.run is None else runs.index(held.run) + 1
            for run in runs[after : after + 1]:
                self.model.add(held.end <= run.slot).only_enforce_if([held.there, run.there])

    def _owe(self, root: int) -> None:
        """Some instance is held to the end of the window."""
        covers = []
        for held in self.held[root]:
            cover = self._literal(now=held.now == self.slots)
            self.model.add_implication(cover, held.there)
            self.model.add(held.end == self.slots).only_enforce_if(cover)
            covers.append(cover)
        self.model.add_bool_or(covers)

    def improve(self, time: float) -> tuple[int, ...] | None:
        """Cheaper contents, or lower ones where those there now do not fit; None if none are found.

        `time` is CP-SAT's deterministic time.
        """
        from ortools.sat.python import cp_model

        window, costs = self.window, self.around.costs
        grain = math.gcd(*(size for _, size in self.demands)) or 1
        room = window.room // grain
        if window.peak > window.room:
            now = -(-window.peak // grain)
            goal = self.model.new_int_var(max(room, 0), now, "")
            self.model.add_hint(goal, now)
            capacity = goal
        else:
            capacity = room
            unit = math.gcd(*(costs[s] or 0 for s in self.runs)) or 1
            goal = sum(
                (costs[s] or 0) // unit * run.there for s, runs in self.runs.items() for run in runs
            )
        sizes = [size // grain for _, size in self.demands]
        self.model.add_cumulative([i for i, _ in self.demands], sizes, capacity)
        self.model.minimize(goal)
        solver = cp_model.CpSolver()
        for k,v in PARAMS.items(): setattr(solver.parameters,k,v)
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = time
        status = solver.solve(self.model)
        self.status = solver.status_name(status), solver.objective_value, solver.best_objective_bound, solver.wall_time
        if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            return None
        found = [
            (solver.value(run.slot), step)
            for step, runs in self.runs.items() for run in runs if solver.value(run.there)
        ]  # fmt: skip
        return tuple(step for _, step in sorted(found))
PARAMS={}
