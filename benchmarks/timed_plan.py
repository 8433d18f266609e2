"""The best plan of a planning instance within some seconds, by two processes.

One runs the planner with its full effort, whatever that takes; the other begins with a quick plan
and anneals it, in rounds sized by the moves per second that it measures.  Whatever is best at the
end counts: which one it is depends on the clock.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection

from gradtool.errors import OverBudget
from gradtool.planning.schedule import Schedule
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.local.anneal import MOVES, polish, rank
from gradtool.planning.search.planner import Answer, cheapest
from gradtool.program import Program

_QUICK = 0.02
_SAME = 10**7  # the part of a step that the arithmetic of the bound may lose
_FIRST_MOVES = 500_000
_LAST_SECONDS = 4.0  # left for reading, checking and writing
_SHARE = 0.45  # of the time left, for each round


@dataclass
class Race:
    """The plans of one budget so far; `refusal` says why there is none."""

    program: Program
    budget: int
    end: float
    best: Answer | None = None
    refusal: OverBudget | None = None
    bound: tuple[int, str] = (0, "none")
    start: tuple[int, ...] = field(default=())

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.end - time.perf_counter()

    @property
    def enough(self) -> int:
        """The bound, and what arithmetic may have lost of it."""
        return self.bound[0] + (self.best.total // _SAME if self.best else 0)

    @property
    def is_over(self) -> bool:
        """Whether time is up, or nothing is left to find."""
        known = self.best is not None and self.best.extra <= self.enough
        return self.left <= 0 or known or (self.refusal is not None and self.refusal.proven)

    def add(self, found: Answer | OverBudget) -> None:
        """Take the better plan and the stronger bound."""
        if isinstance(found, OverBudget):
            self.refusal = found
            return
        self.bound = max(self.bound, (found.bound, found.which_bound))
        if self.best is None or found.extra < self.best.extra:
            self.best = found

    def anneal(self, moves: int, seed: int, stop: Callable[[], bool]) -> None:
        """Anneal the best schedule, or the given order."""
        program, budget = self.program, self.budget
        start = self.best.schedule.order if self.best else self.start or range(len(program.steps))
        found = polish(
            program,
            start,
            budget,
            SearchContext(effort=moves / MOVES, seed=seed, stop=stop),
            enough=self.enough,
        )
        self.start = found.order
        if rank(found.peak, found.extra, budget)[0] == 0:
            total = sum(step.flops or 0 for step in program.steps)
            plan = Schedule.of(found.order), budget, found.peak, found.extra
            self.add(Answer(*plan, self.bound[0], total, self.bound[1], "annealing"))

    def answer(self) -> Answer:
        """The best plan, with the strongest bound.

        Raises:
            OverBudget: there is none.
        """
        if self.best is None:
            raise self.refusal or OverBudget(self.budget, self.budget, 0, proven=False)
        return replace(self.best, bound=self.bound[0], which_bound=self.bound[1])


def timed(program: Program, budget: int, effort: float, seed: int, limit: float) -> Answer:
    """The best plan within so many seconds.

    Raises:
        OverBudget: none was found, or it is proven that there is none.
    """
    race = Race(program, budget, time.perf_counter() + limit - _LAST_SECONDS)
    here, there = multiprocessing.Pipe(duplex=False)
    searcher = multiprocessing.Process(
        target=_search, args=(there, program, budget, effort, seed), daemon=True
    )
    searcher.start()

    def stop() -> bool:
        if here.poll():
            found = here.recv()
            race.add(OverBudget(**found) if isinstance(found, dict) else found)
        return race.is_over

    race.add(_attempt(program, budget, _QUICK, seed))
    moves = _FIRST_MOVES
    while not stop():
        begun = time.perf_counter()
        seed += 1
        race.anneal(moves, seed, stop)
        speed = moves / max(time.perf_counter() - begun, 1e-3)
        moves = max(int(speed * _SHARE * race.left), _FIRST_MOVES)
    searcher.terminate()
    return race.answer()


def _search(pipe: Connection, program: Program, budget: int, effort: float, seed: int) -> None:
    """Send a plan, or what an OverBudget is made of."""
    found = _attempt(program, budget, effort, seed)
    pipe.send(vars(found) if isinstance(found, OverBudget) else found)


def _attempt(program: Program, budget: int, effort: float, seed: int) -> Answer | OverBudget:
    """A plan that nobody annealed, or why there is none; a quick one keeps the given order."""
    given = range(len(program.steps)) if effort == _QUICK else None
    try:
        return cheapest(
            program, budget, SearchContext(effort=effort, seed=seed, stop=lambda: True), order=given
        )
    except OverBudget as error:
        return error
