"""A linear or mixed-integer programme, grown column by column and row by row, for HiGHS in scipy.

All rows are Σ factor · column ≤ limit; the objective, a sum of work, is minimised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gradtool.planning.search.cost_model import CostModel

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Terms: TypeAlias = Iterable[tuple[int, float]]
_SCALE = 1e4  # the objective of one step, so that the solver's tolerances are small beside it
_DUAL_TOLERANCE = 1e-7  # by which HiGHS lets a reduced cost be wrong
_OPTIMAL, _INFEASIBLE = 0, 2  # status codes of scipy


class Solved(NamedTuple):
    """A lower bound of the objective, and the columns of the best solution found, if any.

    `is_closed` says that the two are as near as was asked for.
    """

    bound: float
    values: Floats | None
    is_closed: bool


class Relaxed(NamedTuple):
    """A lower bound of the extra work, and the runs and residuals of a solution.

    `runs` are the steps of each stage, `kept` the storages at each instant; both are empty where no
    solution was found.  `is_closed` says that the solution is as near to the bound as was asked.
    """

    bound: float
    is_closed: bool
    runs: list[frozenset[int]]
    kept: list[frozenset[int]]


class Watched(NamedTuple):
    """A step whose memory is counted in the stage after some instant."""

    step: int
    after: int


class Programme:
    """Columns between 0 and 1; costs are in units of `total`."""

    def __init__(self, total: int) -> None:
        self.total = max(total, 1)
        self.upper: list[float] = []
        self.lower: list[float] = []
        self._costs: list[float] = []
        self._integral: list[bool] = []
        self._columns: list[int] = []
        self._factors: list[float] = []
        self._starts = [0]
        self._limits: list[float] = []

    def column(self, cost: int = 0, *, integral: bool = False) -> int:
        """A new column, with its cost per unit."""
        self.lower.append(0)
        self.upper.append(1)
        self._costs.append(cost / self.total * _SCALE)
        self._integral.append(integral)
        return len(self._costs) - 1

    def row(self, terms: Terms, limit: float = 0) -> None:
        """Σ factor · column ≤ limit."""
        for column, factor in terms:
            self._columns.append(column)
            self._factors.append(factor)
        self._starts.append(len(self._columns))
        self._limits.append(limit)

    def implies(self, need: int, *makers: int) -> None:
        """`need` is no more than the sum of its makers."""
        self.row([(need, 1), *((maker, -1) for maker in makers)])

    def solve(
        self,
        gap: float,
        nodes: int | None = None,
        seconds: float | None = None,
        *,
        relaxed: bool = False,
    ) -> Solved | None:
        """The least work to a relative gap, or as far as some nodes or seconds lead.

        None if there is no solution.  `relaxed` solves the linear relaxation, which takes a
        hundredth of the time and says less.  A reduced cost may be wrong by the solver's tolerance
        in every column, which is taken off.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        shape = (len(self._limits), len(self._costs))
        matrix = csr_array((self._factors, self._columns, self._starts), shape)
        options = {"node_limit": nodes, "time_limit": seconds, "mip_rel_gap": gap}
        result = milp(
            self._costs,
            integrality=None if relaxed else np.array(self._integral, dtype=np.int8),
            bounds=Bounds(self.lower, self.upper),
            constraints=LinearConstraint(matrix, -np.inf, self._limits),
            options={key: value for key, value in options.items() if value is not None},
        )
        if result.status == _INFEASIBLE:
            return None
        known = result.fun if relaxed else result.mip_dual_bound
        least = -np.inf if known is None else known
        least -= _DUAL_TOLERANCE * len(self._costs)
        return Solved(least / _SCALE * self.total, result.x, result.status == _OPTIMAL)


class Touched(NamedTuple):
    """Bytes while a step runs, always-live ones included, and the storages counted in them.

    Other storages count beside them where they are alive.
    """

    bytes: int
    roots: frozenset[int]


def runs_once(work: CostModel, place: int) -> bool:
    """Whether a step runs exactly once in every schedule.

    It does if it may not run again, or if all outputs are results or read by nobody: another run
    would leave nothing to read.
    """
    return not work.repeatable[place] or not work.fleeting[place]


def at_first(work: CostModel, place: int) -> Touched:
    """The bytes of a step when it runs for the first time.

    Of several outputs that pass perhaps one is read, so none is spoken of.  The first output counts
    nothing if it may lie where an input ends.
    """
    results = [r for r in work.writes[place] if r not in work.fleeting[place]]
    only = work.fleeting[place] if _is_for_one(work, place) else ()
    return _touched(work, place, [*results, *only])


def at_any(work: CostModel, place: int) -> Touched:
    """The bytes of a step in each of its runs, in which results may be there already."""
    read = work.simulator.read
    if not work.fleeting[place]:
        return at_first(work, place)
    results = [r for r in work.writes[place] if r not in read and r not in work.live_out]
    only = work.fleeting[place] if _is_for_one(work, place) else ()
    found = _touched(work, place, [*results, *only])
    return Touched(found.bytes, found.roots | set(work.writes[place]))


def _is_for_one(work: CostModel, place: int) -> bool:
    return len(work.fleeting[place]) == 1 and not work.is_result[place]


def _touched(work: CostModel, place: int, written: list[int]) -> Touched:
    simulator, target = work.simulator, work.targets[place]
    counted = [r for r in written if r != target]
    held = {*work.reads[place], *counted}
    size = simulator.fixed + simulator.work[work.order[place]] + sum(work.bytes[r] for r in held)
    return Touched(size, frozenset(held if target < 0 else held | {target}))
