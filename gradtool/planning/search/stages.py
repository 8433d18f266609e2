"""Extra work at several instants at once: an integer programme, coarse in time.

Between two instants that follow each other in every order lies a stage.  `run[s, k]` says that step
s runs in stage k, `kept[v, k]` that storage v is alive at instant k and read later.  Memory is
counted at the instants only, so the optimum is never above that of any schedule; how it is proven
is in docs/bounds.md.

Source: the stages and rows are those of Checkmate (Jain et al. 2020, arXiv:1910.02653), §4; unlike
them stages are few and in no fixed order of steps, and `ever[s, k]` (step s runs after instant k)
adds rows that make one instant's relaxation as strong as its minimum cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.mincut import Instant

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
_TOLERANCE = 1e-6


class Relaxed(NamedTuple):
    """A lower bound of the extra work, and what a solution keeps at each instant (0 to 1)."""

    bound: float
    kept: list[dict[int, float]]


class Stages:
    """The programme of some instants, each an ancestor of the next, and a budget in bytes."""

    def __init__(self, work: CostModel, instants: Sequence[Instant], budget: int) -> None:
        self.work = work
        self.instants = instants
        self.budget = budget
        self.steps = len(work.reads)
        self.roots = {r: i for i, r in enumerate(work.maker)}
        self.count = len(instants)
        self.rows: list[list[tuple[int, float]]] = []
        self.limits: list[float] = []
        runs, kept = (self.count + 1) * self.steps, self.count * len(self.roots)
        self.size = runs + kept + self.count * self.steps
        self.lower = np.zeros(self.size)
        self.upper = np.ones(self.size)
        self.cost = np.zeros(self.size)
        scale = max(work.total, 1)
        self.cost[:runs] = np.tile(np.array(work.costs, dtype=np.float64) / scale, self.count + 1)
        self._fix()
        for stage in range(self.count + 1):
            self._reads(stage)
        for instant in range(self.count):
            self._ever(instant)
            self._memory(instant)
        self._once()

    def _run(self, step: int, stage: int) -> int:
        return stage * self.steps + step

    def _kept(self, root: int, instant: int) -> int:
        return (self.count + 1) * self.steps + instant * len(self.roots) + self.roots[root]

    def _ever_run(self, step: int, instant: int) -> int:
        return self.size - (self.count - instant) * self.steps + step

    def _row(self, terms: list[tuple[int, float]], limit: float) -> None:
        """Σ factor · variable ≤ limit, without the variables that are fixed at 0."""
        left = [(column, factor) for column, factor in terms if self.upper[column] > 0]
        if left:
            self.rows.append(left)
            self.limits.append(limit)

    def _fix(self) -> None:
        """Late steps have not run; the step of an instant ends its stage."""
        for k, instant in enumerate(self.instants):
            late = sorted(instant.late)
            for stage in range(k + 1):
                self.upper[[self._run(s, stage) for s in late]] = 0
            self.upper[[self._run(instant.at, stage) for stage in range(k)]] = 0
            self.lower[self._run(instant.at, k)] = 1
            absent = [r for s in late for r in self.work.writes[s]]
            self.upper[[self._kept(r, k) for r in absent]] = 0

    def _reads(self, stage: int) -> None:
        """What a stage reads it makes or has kept; what it leaves, too."""
        maker = self.work.maker
        for step, reads in enumerate(self.work.reads):
            for root in reads if self.upper[self._run(step, stage)] else ():
                self._covered(self._run(step, stage), root, [self._run(maker[root], stage)], stage)
        if stage < self.count:
            for root in self.roots:
                self._covered(self._kept(root, stage), root, [self._run(maker[root], stage)], stage)

    def _covered(self, need: int, root: int, makers: list[int], stage: int) -> None:
        """A need of a storage is met by its makers or by what the instant before has kept."""
        before = [self._kept(root, stage - 1)] if stage else []
        if self.upper[need]:
            self._row([(need, 1.0), *((m, -1.0) for m in (*makers, *before))], 0.0)

    def _ever(self, instant: int) -> None:
        stages = range(instant + 1, self.count + 1)
        for step, reads in enumerate(self.work.reads):
            ever = self._ever_run(step, instant)
            runs = [self._run(step, k) for k in stages]
            self._row([(ever, 1.0), *((r, -1.0) for r in runs)], 0.0)
            for run in runs:
                if self.upper[run]:
                    self._row([(run, 1.0), (ever, -1.0)], 0.0)
            for root in reads:
                made = self._ever_run(self.work.maker[root], instant)
                self._covered(ever, root, [made], instant + 1)

    def _memory(self, k: int) -> None:
        instant = self.instants[k]
        room = instant.capacity(self.budget)
        scale = float(max(abs(room), 1))
        size = self.work.bytes
        kept = [
            (self._kept(r, k), size[r] / scale)
            for r in self.roots if r not in instant.present and size[r]
        ]  # fmt: skip
        self._row(kept, room / scale)

    def _once(self) -> None:
        """Every step runs, those that may not run again no more than once."""
        for step, repeatable in enumerate(self.work.repeatable):
            runs = [self._run(step, k) for k in range(self.count + 1)]
            self._row([(r, -1.0) for r in runs], -1.0)
            if not repeatable:
                self._row([(r, 1.0) for r in runs], 1.0)

    def _matrix(self) -> Any:
        from scipy.sparse import csr_array

        lengths = [len(row) for row in self.rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        columns = np.array([c for row in self.rows for c, _ in row], dtype=np.int64)
        factors = np.array([f for row in self.rows for _, f in row])
        return csr_array((factors, columns, starts), (len(self.rows), self.size))

    def solve(self, nodes: int) -> Relaxed | None:
        """The integer programme, with at most `nodes` nodes of branch and bound."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        result = milp(
            self.cost * 100,
            integrality=np.ones(self.size),
            bounds=Bounds(self.lower, self.upper),
            constraints=LinearConstraint(self._matrix(), -np.inf, np.array(self.limits)),
            options={"node_limit": nodes, "mip_rel_gap": _TOLERANCE},
        )
        if result.status == 2:
            return None
        least = -np.inf if result.mip_dual_bound is None else result.mip_dual_bound / 100
        return Relaxed(self._work(least - _TOLERANCE / 100), self._solution(result.x))

    def _work(self, share: float) -> float:
        return max((share - 1) * self.work.total, 0.0) if np.isfinite(share) else 0.0

    def _solution(self, values: Floats | None) -> list[dict[int, float]]:
        if values is None:
            return []
        return [{r: float(values[self._kept(r, k)]) for r in self.roots} for k in range(self.count)]
